#include "tessera/nn/state/state_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/nn/state/state_value_text.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/safetensors.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.load_state";
constexpr std::string_view kPrefix = "tessera/";

struct PlacedValue {
  std::size_t position;  // in the dict, tensors counted
  std::string name;
  StateValue value;
};

std::optional<std::size_t> parse_position(std::string_view text) {
  std::size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "12 number 0.001".
std::optional<PlacedValue> parse_entry(std::string_view name, std::string_view text) {
  const std::size_t first = text.find(' ');
  if (name.empty() || first == std::string_view::npos) return std::nullopt;
  const std::size_t second = text.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto position = parse_position(text.substr(0, first));
  auto value =
      parse_state_value(text.substr(first + 1, second - first - 1), text.substr(second + 1));
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
    const ShardSpec* spec = state.part_of(name);
    if (spec == nullptr) continue;
    if (parts++ == 0)
      example = fmt::format("\"{}\" is this rank's {} of {}", name,
                            std::get<Tensor>(value).shape().str(), spec->global_shape.str());
  }
  TESSERA_CHECK(parts == 0, "nn.save_state",
                "\"{}\" would hold parts of {} sharded tensors ({}); call "
                "fsdp::full_state_dict(model), or fsdp::full_optimizer_state(optimizer), on all "
                "ranks, and save the result on rank 0",
                path, parts, example);
}

}  // namespace

void save_state(const std::string& path, const StateDict& state) {
  save_state_from(path, state, [&](const std::string& name) { return state.tensor(name); });
}

namespace {

struct FileContents {
  std::vector<SafetensorsSource> tensors;
  SafetensorsMetadata metadata;
};

// `read` must outlive the result.
FileContents contents_of(const StateDict& state,
                         const std::function<Tensor(const std::string& name)>& read) {
  FileContents out;
  std::size_t position = 0;
  for (const auto& [name, value] : state) {
    if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
      out.tensors.push_back({.name = name,
                             .dtype = tensor->dtype(),
                             .shape = tensor->shape(),
                             .read = [&read, name = name] { return read(name); }});
    } else {
      out.metadata.emplace_back(
          std::string(kPrefix) + name,
          fmt::format("{} {} {}", position, state_value_kind(value), state_value_text(value)));
    }
    ++position;
  }
  return out;
}

}  // namespace

void save_state_from(const std::string& path, const StateDict& state,
                     const std::function<Tensor(const std::string& name)>& read) {
  check_whole(path, state);
  const FileContents contents = contents_of(state, read);
  write_safetensors_from(path, contents.tensors, contents.metadata);
}

std::vector<std::string> saved_order(const StateDict& state) {
  std::vector<std::string> names, out;
  std::vector<DType> dtypes;
  for (const auto& [name, value] : state) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) continue;
    names.push_back(name);
    dtypes.push_back(tensor->dtype());
  }
  for (const std::size_t at : safetensors_order(dtypes)) out.push_back(names[at]);
  return out;
}

StateDict load_state(const std::string& path, const LoadStateOptions& options) {
  const SafetensorsFile file(path);
  std::vector<PlacedValue> values = values_of(file);
  StateDict out;
  const auto put = [&](const std::string& name, StateValue value) {
    TESSERA_CHECK_AS(CheckpointError, !name.empty(), kWhere, "\"{}\" has a tensor without a name",
                     path);
    TESSERA_CHECK_AS(CheckpointError, name.find('\0') == std::string::npos, kWhere,
                     "\"{}\" has a tensor with a NUL byte in its name, behind \"{}\"", path,
                     name.c_str());
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
