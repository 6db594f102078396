#include "tessera/nn/state/state_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/safetensors.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.load_state";
constexpr std::string_view kPrefix = "tessera/";
constexpr std::string_view kNan = "nan:";

struct PlacedValue {
  std::size_t position;  // in the dict, tensors counted
  std::string name;
  StateValue value;
};

// A NaN has bits that no decimal shows; fmt writes all else so that it reads back exactly.
std::string number_text(double value) {
  return std::isnan(value) ? fmt::format("{}{:016x}", kNan, std::bit_cast<std::uint64_t>(value))
                           : fmt::format("{}", value);
}

std::string value_text(const StateValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  return std::get<std::string>(value);
}

// All of `text`, or nothing.
template <class T, class... Format>
std::optional<T> parse(std::string_view text, Format... format) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<StateValue> parse_number(std::string_view text) {
  if (text.starts_with(kNan)) {
    const auto bits = parse<std::uint64_t>(text.substr(kNan.size()), 16);
    if (!bits || !std::isnan(std::bit_cast<double>(*bits))) return std::nullopt;
    return std::bit_cast<double>(*bits);
  }
  const auto number = parse<double>(text);
  if (!number || std::isnan(*number)) return std::nullopt;
  return *number;
}

std::optional<StateValue> parse_value(std::string_view kind, std::string_view text) {
  if (kind == "bool" && (text == "true" || text == "false")) return text == "true";
  if (kind == "integer") {
    const auto whole = parse<std::int64_t>(text);
    if (whole) return *whole;
  }
  if (kind == "number") return parse_number(text);
  if (kind == "text") return std::string(text);
  return std::nullopt;
}

// "12 number 0.001".
std::optional<PlacedValue> parse_entry(std::string_view name, std::string_view text) {
  const std::size_t first = text.find(' ');
  if (name.empty() || first == std::string_view::npos) return std::nullopt;
  const std::size_t second = text.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto position = parse<std::size_t>(text.substr(0, first));
  auto value = parse_value(text.substr(first + 1, second - first - 1), text.substr(second + 1));
  if (!position || !value) return std::nullopt;
  return PlacedValue{*position, std::string(name), *std::move(value)};
}

// Those under our prefix, by place.
std::vector<PlacedValue> values_of(const SafetensorsFile& file) {
  std::vector<PlacedValue> out;
  for (const auto& [key, text] : file.metadata()) {
    if (!key.starts_with(kPrefix)) continue;
    auto entry = parse_entry(std::string_view(key).substr(kPrefix.size()), text);
    TESSERA_CHECK_AS(CheckpointError, entry.has_value(), kWhere,
                     "\"{}\": metadata \"{}\" is \"{}\", which is not the place, kind and text of "
                     "a value",
                     file.path(), key, text);
    out.push_back(*std::move(entry));
  }
  std::stable_sort(out.begin(), out.end(), [](const PlacedValue& a, const PlacedValue& b) {
    return a.position < b.position;
  });
  return out;
}

// A file with parts would be loaded as if it were whole, or not at all, and would not say which rank
// wrote it last.
void check_whole(const std::string& path, const StateDict& state) {
  std::size_t parts = 0;
  std::string example;
  for (const auto& [name, value] : state) {
    const Shape* whole = state.whole_of(name);
    if (whole == nullptr) continue;
    if (parts++ == 0)
      example = fmt::format("\"{}\" is this rank's {} of {}", name,
                            std::get<Tensor>(value).shape().str(), whole->str());
  }
  TESSERA_CHECK(parts == 0, "nn.save_state",
                "\"{}\" would hold parts of {} sharded tensors ({}); call "
                "fsdp::full_state_dict(model), or fsdp::full_optimizer_state(optimizer), on all "
                "ranks, and save the result on rank 0",
                path, parts, example);
}

}  // namespace

void save_state(const std::string& path, const StateDict& state) {
  check_whole(path, state);
  std::vector<std::pair<std::string, Tensor>> tensors;
  SafetensorsMetadata metadata;
  std::size_t position = 0;
  for (const auto& [name, value] : state) {
    if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
      tensors.emplace_back(name, *tensor);
    } else {
      metadata.emplace_back(
          std::string(kPrefix) + name,
          fmt::format("{} {} {}", position, state_value_kind(value), value_text(value)));
    }
    ++position;
  }
  write_safetensors(path, tensors, metadata);
}

StateDict load_state(const std::string& path, const LoadStateOptions& options) {
  const SafetensorsFile file(path);
  std::vector<PlacedValue> values = values_of(file);
  StateDict out;
  const auto put = [&](const std::string& name, StateValue value) {
    TESSERA_CHECK_AS(CheckpointError, !name.empty(), kWhere, "\"{}\" has a tensor without a name",
                     path);
    TESSERA_CHECK_AS(CheckpointError, !out.contains(name), kWhere,
                     "\"{}\" has a tensor and a value that are both called \"{}\"", path, name);
    out.set(name, std::move(value));
  };
  auto next = values.begin();
  for (const SafetensorsInfo& info : file.tensors()) {
    for (; next != values.end() && next->position <= out.size(); ++next) {
      put(next->name, std::move(next->value));
    }
    put(info.name, file.read(info.name, options.device));
  }
  for (; next != values.end(); ++next) put(next->name, std::move(next->value));
  return out;
}

}  // namespace tessera::nn
