// Untrusted files, made at random: the index of a checkpoint and the header of a safetensors file. A made one is
// valid; then parts of it are replaced, moved, repeated or removed as JSON, so that most inputs pass the first checks,
// and a few bytes may be changed. A parser either refuses with CheckpointError, or returns something consistent that
// its writer writes and it reads again.
//
// Each case runs for TESSERA_FUZZ_SECONDS, by default one second; the test target says 30. Random numbers begin with
// TESSERA_FUZZ_SEED, by default 1. A failure prints it:
//
//     tools/bazel run --config=asan //tests/fsdp/checkpoint:fuzz_test
//     TESSERA_FUZZ_SECONDS=3600 bazel-bin/tests/fsdp/checkpoint/fuzz_test

#include <fmt/format.h>
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/io/chunk_checksums.h"
#include "tessera/tensor/io/safetensors_header.h"

namespace tessera::testing {
namespace {

using Json = nlohmann::ordered_json;
using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t end) { return random() % end; }
bool one_in(Random& random, std::uint64_t count) { return below(random, count) == 0; }

template <class List>
const auto& any_of_list(Random& random, const List& list) {
  return list[below(random, std::size(list))];
}

// ---- changes of a JSON tree

// Numbers at the edges of the types that hold them, and near others.
Json odd_number(Random& random) {
  static const std::vector<Json> numbers = {0,
                                            1,
                                            -1,
                                            2,
                                            7,
                                            255,
                                            1 << 20,
                                            (1 << 20) + 1,
                                            std::numeric_limits<std::int32_t>::max(),
                                            std::uint64_t{1} << 32,
                                            std::uint64_t{1} << 61,
                                            std::numeric_limits<std::int64_t>::max(),
                                            std::numeric_limits<std::int64_t>::min(),
                                            std::uint64_t{1} << 63,
                                            std::numeric_limits<std::uint64_t>::max(),
                                            0.5,
                                            1e300};
  return any_of_list(random, numbers);
}

Json odd_value(Random& random) {
  switch (below(random, 8)) {
    case 0:
      return nullptr;
    case 1:
      return true;
    case 2:
      return Json::array();
    case 3:
      return Json::object();
    case 4:
      return any_of_list(random, std::vector<std::string>{"",
                                                          ".",
                                                          "..",
                                                          "../a",
                                                          "/etc/passwd",
                                                          "a/b",
                                                          "F32",
                                                          "BF16",
                                                          "F64",
                                                          "bool",
                                                          "f32",
                                                          "i64",
                                                          "rank-00000.safetensors",
                                                          "__metadata__",
                                                          "\n",
                                                          std::string(1, '\0'),
                                                          "0000000000000000",
                                                          "NaN",
                                                          std::string(300, 'x'),
                                                          "\xC3\xA9"});
    default:
      return odd_number(random);
  }
}

// All values below `json`, itself included.
void collect(Json& json, std::vector<Json*>& out) {
  out.push_back(&json);
  if (json.is_object() || json.is_array())
    for (auto& child : json) collect(child, out);
}

void change(Random& random, Json& root) {
  std::vector<Json*> all;
  collect(root, all);
  Json& place = *any_of_list(random, all);
  const Json other = *any_of_list(random, all);  // a copy: it may hold `place`
  switch (below(random, 7)) {
    case 0:
      place = odd_value(random);
      return;
    case 1:
      place = other;
      return;
    case 2:  // near what was there
      if (place.is_number_integer()) {
        const auto number = static_cast<std::uint64_t>(place.get<std::int64_t>());
        place = static_cast<std::int64_t>(one_in(random, 2) ? number + 1 : number - 1);
      }
      return;
    case 3:
      if (place.is_number_unsigned()) place = place.get<std::uint64_t>() << below(random, 64);
      return;
    case 4:
      if ((place.is_object() || place.is_array()) && !place.empty()) {
        auto at = place.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(below(random, place.size())));
        place.erase(at);
      }
      return;
    case 5:
      if (place.is_array())
        place.push_back(place.empty() || one_in(random, 3) ? other : place.front());
      return;
    default:
      if (place.is_object())
        place[any_of_list(random, std::vector<std::string>{"a", "", "shape", "dtype", "name"})] =
            other;
      return;
  }
}

// The tree's text after some changes, of its bytes too now and then.
std::string changed_text(Random& random, Json json) {
  for (std::uint64_t left = 1 + below(random, 4); left > 0; --left) change(random, json);
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (one_in(random, 4) && !text.empty()) {
    const std::size_t at = below(random, text.size());
    switch (below(random, 3)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random()));
        break;
      default:
        text.erase(at, 1 + below(random, 5));
    }
  }
  return text;
}

// ---- the runs

double seconds_to_run() {
  const char* text = std::getenv("TESSERA_FUZZ_SECONDS");
  return text == nullptr ? 1 : std::atof(text);
}

std::uint64_t first_seed() {
  const char* text = std::getenv("TESSERA_FUZZ_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// Calls accepted = attempt(random) for seed after seed until the time is up, at least 200 times.
template <class Attempt>
void run_for_some_time(const char* what, const Attempt& attempt) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds_to_run());
  std::uint64_t inputs = 0, accepted = 0;
  for (std::uint64_t seed = first_seed(); inputs < 200 || Clock::now() < end; ++seed, ++inputs) {
    INFO(what << ": TESSERA_FUZZ_SEED=" << seed);
    Random random(seed);
    if (attempt(random)) ++accepted;
  }
  fmt::print("{}: {} inputs, {} of them accepted\n", what, inputs, accepted);
  CHECK(accepted > 0);           // some changes do no harm
  CHECK(accepted < inputs / 2);  // most do
}

// ---- the index of a checkpoint

checkpoint::Index made_index(Random& random) {
  checkpoint::Index index;
  const std::uint64_t ranks = 1 + below(random, 3);
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    index.files.push_back(
        {.name = fmt::format("rank-{:05}.safetensors", rank), .bytes = 0, .checksums = {}});
  for (std::uint64_t count = below(random, 4), i = 0; i < count; ++i) {
    checkpoint::StoredTensor tensor{.name = fmt::format("model.{}.weight", i),
                                    .dtype = any_of_list(random, kAllDTypes),
                                    .shape = {},
                                    .boxes = {}};
    for (std::uint64_t dims = below(random, 4); dims > 0; --dims)
      tensor.shape.push_back(static_cast<std::int64_t>(below(random, 6)));
    const auto add_box = [&](Shape offset, Shape extent) {
      const std::size_t file = below(random, ranks);
      const std::uint64_t bytes =
          static_cast<std::uint64_t>(extent.numel()) * dtype_size(tensor.dtype);
      tensor.boxes.push_back({.box = {.offset = offset, .extent = extent},
                              .file = file,
                              .begin = index.files[file].bytes});
      index.files[file].bytes += bytes;
    };
    const int ndim = tensor.shape.ndim();
    if (ndim > 0 && tensor.shape[0] > 1) {  // two parts
      const auto cut = static_cast<std::int64_t>(
          1 + below(random, static_cast<std::uint64_t>(tensor.shape[0] - 1)));
      add_box(Shape::filled(ndim, 0), tensor.shape.with(0, cut));
      add_box(Shape::filled(ndim, 0).with(0, cut), tensor.shape.with(0, tensor.shape[0] - cut));
    } else {
      add_box(Shape::filled(ndim, 0), tensor.shape);
    }
    index.tensors.push_back(tensor);
  }
  for (checkpoint::StoredFile& file : index.files) {
    file.bytes += below(random, 3);
    file.checksums.resize(checksum_chunks(file.bytes), random());
  }
  index.values.set("values.trainer.step", static_cast<std::int64_t>(random()));
  if (one_in(random, 2)) index.values.set("scheduler.lr", 0.1);
  return index;
}

std::string sealed(const std::string& body) {
  return fmt::format("{},\"checksum\":\"{:016x}\"}}\n", body,
                     XXH3_64bits(body.data(), body.size()));
}

// Whatever is accepted can be read: every element has its bytes in a file.
void check_index(const checkpoint::Index& index) {
  for (const checkpoint::StoredTensor& tensor : index.tensors) {
    std::int64_t elements = 0;
    for (const checkpoint::StoredBox& stored : tensor.boxes) {
      const Shape &offset = stored.box.offset, &extent = stored.box.extent;
      REQUIRE(stored.file < index.files.size());
      REQUIRE(offset.ndim() == tensor.shape.ndim());
      for (int d = 0; d < tensor.shape.ndim(); ++d) {
        CHECK(offset[d] >= 0);
        CHECK(extent[d] >= 0);
        CHECK(offset[d] <= tensor.shape[d] - extent[d]);
      }
      const auto bytes = static_cast<std::uint64_t>(extent.numel()) * dtype_size(tensor.dtype);
      CHECK(stored.begin <= index.files[stored.file].bytes);
      CHECK(bytes <= index.files[stored.file].bytes - stored.begin);
      elements += extent.numel();
    }
    CHECK(elements == tensor.shape.numel());
  }
  for (const checkpoint::StoredFile& file : index.files) {
    CHECK(file.checksums.size() == checksum_chunks(file.bytes));
    CHECK(file.name.find('/') == std::string::npos);
  }
  const checkpoint::Index again = checkpoint::parse_index("again", checkpoint::index_text(index));
  CHECK(again.files == index.files);
  CHECK(again.tensors == index.tensors);
  CHECK(again.values.size() == index.values.size());
}

TEST_CASE("an index made at random is refused, or consistent") {
  run_for_some_time("index.json", [](Random& random) {
    const std::string text = checkpoint::index_text(made_index(random));
    check_index(checkpoint::parse_index("made", text));
    Json json = Json::parse(text);
    json.erase("checksum");
    std::string body = changed_text(random, json);
    if (body.ends_with("}")) body.pop_back();
    std::string input = sealed(body);
    if (one_in(random, 16)) input.resize(below(random, input.size() + 1));
    try {
      check_index(checkpoint::parse_index("changed", input));
      return true;
    } catch (const CheckpointError&) {
      return false;
    }
  });
}

// ---- the header of a safetensors file

detail::SafetensorsHeader made_header(Random& random, std::uint64_t& elements) {
  detail::SafetensorsHeader header;
  elements = 0;
  for (std::uint64_t count = below(random, 4), i = 0; i < count; ++i) {
    SafetensorsInfo info;
    info.name = fmt::format("layer.{}", i);
    info.dtype = any_of_list(random, kAllDTypes);
    info.dtype_name = detail::safetensors_dtype_name(*info.dtype);
    for (std::uint64_t dims = below(random, 4); dims > 0; --dims)
      info.shape.push_back(static_cast<std::int64_t>(below(random, 5)));
    info.begin = elements;
    elements += static_cast<std::uint64_t>(info.shape.numel()) * dtype_size(*info.dtype);
    info.end = elements;
    header.tensors.push_back(info);
  }
  if (one_in(random, 2)) header.metadata.emplace_back("format", "pt");
  return header;
}

// The ranges fill the elements, in some order, without gaps and overlaps.
void check_header(const detail::SafetensorsHeader& header, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const SafetensorsInfo& info : header.tensors) {
    CHECK(info.begin <= info.end);
    if (info.dtype)
      CHECK(static_cast<std::uint64_t>(info.shape.numel()) * dtype_size(*info.dtype) ==
            info.end - info.begin);
    ranges.emplace_back(info.begin, info.end);
  }
  std::sort(ranges.begin(), ranges.end());
  for (const auto& [from, to] : ranges) {
    CHECK(from == begin);
    begin = to;
  }
  CHECK(begin == end);
}

TEST_CASE("a safetensors header made at random is refused, or consistent") {
  run_for_some_time("safetensors", [](Random& random) {
    std::uint64_t elements = 0;
    const std::string text = detail::safetensors_header_text(made_header(random, elements));
    const auto parse = [](const std::string& header, std::uint64_t bytes) {
      const std::uint64_t begin = detail::kSafetensorsPrefix + header.size();
      check_header(detail::parse_safetensors_header("file", header, begin + bytes), begin,
                   begin + bytes);
    };
    parse(text, elements);
    const std::string input = changed_text(random, Json::parse(text));
    if (one_in(random, 8)) elements += below(random, 3);
    try {
      parse(input, elements);
      return true;
    } catch (const CheckpointError&) {
      return false;
    }
  });
}

}  // namespace
}  // namespace tessera::testing
