#include "tessera/fsdp/checkpoint/index.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tessera/fsdp/checkpoint/boxes.h"
#include "tessera/nn/state/state_value_text.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/chunk_checksums.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRead = "checkpoint.load";
constexpr const char* kWrite = "checkpoint.save";
constexpr int kMaxDepth = 8;  // the format needs 5
// What follows the part of the text that is checked: ,"checksum":"0123456789abcdef"}
constexpr std::string_view kChecksumKey = ",\"checksum\":\"";
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kTail = kChecksumKey.size() + kDigits + kEnd.size();

std::string hex(std::uint64_t number) { return fmt::format("{:016x}", number); }

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, 16);
  if (text.size() != kDigits || error != std::errc() || stop != end || text != hex(number))
    return std::nullopt;
  return number;
}

std::vector<std::int64_t> numbers(const Shape& shape) { return {shape.begin(), shape.end()}; }

Json json_of(const StoredFile& file) {
  std::vector<std::string> checksums;
  for (const std::uint64_t checksum : file.checksums) checksums.push_back(hex(checksum));
  return {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", checksums}};
}

Json json_of(const StoredTensor& tensor) {
  Json boxes = Json::array();
  for (const StoredBox& stored : tensor.boxes) {
    boxes.push_back({{"file", stored.file},
                     {"begin", stored.begin},
                     {"offset", numbers(stored.box.offset)},
                     {"extent", numbers(stored.box.extent)}});
  }
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", numbers(tensor.shape)},
          {"boxes", std::move(boxes)}};
}

// A checked way into the parsed text: every step names the place where the text has something else.
class Place {
 public:
  Place(const std::string& path, const Json& json, std::string name)
      : path_(path), json_(json), name_(std::move(name)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw_error<CheckpointError>(kRead, "\"{}\": {} {}", path_, name_, what);
  }
  void check(bool holds, const std::string& what) const {
    if (!holds) refuse(what);
  }

  Place at(const char* key) const {
    check(json_.is_object(), "is no object");
    const auto found = json_.find(key);
    check(found != json_.end(), fmt::format("has no \"{}\"", key));
    return {path_, *found, fmt::format("\"{}\" of {}", key, name_)};
  }
  // Calls function(place) for the entries of a list.
  template <class F>
  void each(const char* what, const F& function) const {
    check(json_.is_array(), "is no list");
    std::size_t number = 0;
    for (const Json& entry : json_)
      function(Place(path_, entry, fmt::format("{} {}", what, number++)));
  }
  std::uint64_t number() const {
    check(json_.is_number_unsigned(), "is no whole number from 0 to 2^64 - 1");
    return json_.get<std::uint64_t>();
  }
  std::int64_t extent() const {
    const std::uint64_t value = number();
    check(value <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}, "is above 2^63 - 1");
    return static_cast<std::int64_t>(value);
  }
  const std::string& text() const {
    check(json_.is_string(), "is no text");
    return json_.get_ref<const std::string&>();
  }
  Shape shape() const {
    check(json_.is_array() && json_.size() <= kMaxDims,
          fmt::format("is no list of at most {} numbers", kMaxDims));
    Shape shape;
    each("entry", [&](const Place& entry) { shape.push_back(entry.extent()); });
    return shape;
  }
  std::uint64_t checksum() const {
    const std::optional<std::uint64_t> value = parse_hex(text());
    check(value.has_value(), "is no checksum of 16 hexadecimal digits");
    return *value;
  }
  // The place with a name that says more than its number.
  Place named(std::string name) const { return {path_, json_, std::move(name)}; }

 private:
  const std::string& path_;
  const Json& json_;
  std::string name_;
};

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

StoredFile parse_file(const Place& place) {
  StoredFile file{
      .name = place.at("name").text(), .bytes = place.at("bytes").number(), .checksums = {}};
  place.at("name").check(is_plain_name(file.name), "is no name of a file in the folder");
  place.at("bytes").check(file.bytes <= std::uint64_t{std::numeric_limits<std::int64_t>::max()},
                          "is above 2^63 - 1");
  const Place checksums = place.at("xxh3");
  checksums.each("checksum",
                 [&](const Place& entry) { file.checksums.push_back(entry.checksum()); });
  checksums.check(file.checksums.size() == checksum_chunks(file.bytes),
                  fmt::format("has {} checksums; {} bytes are {} chunks", file.checksums.size(),
                              file.bytes, checksum_chunks(file.bytes)));
  return file;
}

DType parse_dtype(const Place& place) {
  for (const DType dtype : kAllDTypes) {
    if (place.text() == dtype_name(dtype)) return dtype;
  }
  place.refuse(fmt::format("is \"{}\", which is no dtype", place.text()));
}

// The number of bytes; a shape that needs more than 2^63 - 1 is refused, extents of 0 left out.
std::uint64_t bytes_of(const Place& place, const Shape& shape, DType dtype) {
  auto bytes = static_cast<std::int64_t>(dtype_size(dtype));
  bool empty = false;
  for (const std::int64_t extent : shape) {
    empty = empty || extent == 0;
    place.check(extent == 0 || !__builtin_mul_overflow(bytes, extent, &bytes),
                "has too many elements");
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

StoredBox parse_box(const Place& place, const StoredTensor& tensor,
                    const std::vector<StoredFile>& files) {
  StoredBox stored{
      .box = {.offset = place.at("offset").shape(), .extent = place.at("extent").shape()},
      .file = place.at("file").number(),
      .begin = place.at("begin").number()};
  const auto& [offset, extent] = stored.box;
  const int ndim = tensor.shape.ndim();
  place.check(
      offset.ndim() == ndim && extent.ndim() == ndim,
      fmt::format("has {} and {} dims; the tensor has {}", offset.ndim(), extent.ndim(), ndim));
  for (int d = 0; d < ndim; ++d)
    place.check(offset[d] <= tensor.shape[d] && extent[d] <= tensor.shape[d] - offset[d],
                fmt::format("reaches outside the shape {} in dim {}", tensor.shape.str(), d));
  place.check(stored.file < files.size(),
              fmt::format("is in file {} of {}", stored.file, files.size()));
  const StoredFile& file = files[stored.file];
  const std::uint64_t bytes = bytes_of(place, extent, tensor.dtype);
  place.check(stored.begin <= file.bytes && bytes <= file.bytes - stored.begin,
              fmt::format("needs {} bytes from {} of \"{}\", which has {}", bytes, stored.begin,
                          file.name, file.bytes));
  return stored;
}

StoredTensor parse_tensor(const Place& numbered, const std::vector<StoredFile>& files) {
  StoredTensor tensor;
  tensor.name = numbered.at("name").text();
  // The text of an error ends at a NUL byte.
  numbered.check(tensor.name.find('\0') == std::string::npos, "has a NUL byte in its name");
  const Place place = numbered.named(fmt::format("tensor \"{}\"", tensor.name));
  place.check(!tensor.name.empty(), "has no name");
  tensor.dtype = parse_dtype(place.at("dtype"));
  tensor.shape = place.at("shape").shape();
  bytes_of(place.at("shape"), tensor.shape, tensor.dtype);
  std::vector<nn::ShardBox> boxes;
  place.at("boxes").each("box", [&](const Place& entry) {
    const Place box =
        entry.named(fmt::format("box {} of tensor \"{}\"", boxes.size(), tensor.name));
    tensor.boxes.push_back(parse_box(box, tensor, files));
    boxes.push_back(tensor.boxes.back().box);
  });
  const std::string problem = cover_problem(tensor.shape, boxes);
  place.check(problem.empty(), fmt::format("is not whole: {}", problem));
  return tensor;
}

// Refuses what nests deeply, and keys that stand twice in an object, before they are stored.
Json parsed(const std::string& path, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& json) {
    TESSERA_CHECK_AS(CheckpointError, depth <= kMaxDepth, kRead, "\"{}\" nests more than {} deep",
                     path, kMaxDepth);
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      TESSERA_CHECK_AS(CheckpointError, keys.back().insert(json.get<std::string>()).second, kRead,
                       "\"{}\": the key {} stands twice in an object", path, json.dump());
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::parse_error& error) {
    throw_error<CheckpointError>(kRead, "\"{}\" stops being JSON at byte {}", path, error.byte);
  } catch (const Json::exception& error) {  // a number that fits no type
    throw_error<CheckpointError>(kRead, "\"{}\" is no index: {}", path, error.what());
  }
}

std::string_view checked_body(const std::string& path, std::string_view text) {
  TESSERA_CHECK_AS(CheckpointError, text.size() <= kMaxIndexBytes, kRead,
                   "\"{}\" has {} bytes; at most {} are read", path, text.size(), kMaxIndexBytes);
  const bool has_tail = text.size() > kTail && text.ends_with(kEnd) &&
                        text.substr(text.size() - kTail).starts_with(kChecksumKey);
  TESSERA_CHECK_AS(CheckpointError, has_tail, kRead,
                   "\"{}\" is damaged or no index of a checkpoint: it does not end with a checksum",
                   path);
  const std::string_view body = text.substr(0, text.size() - kTail);
  const std::string found = hex(checksum_of(body.data(), body.size()));
  const std::string_view written = text.substr(body.size() + kChecksumKey.size(), kDigits);
  TESSERA_CHECK_AS(CheckpointError, found == written, kRead,
                   "\"{}\" is damaged: it has the checksum {}, and {} was written", path, found,
                   written);
  return body;
}

}  // namespace

std::string index_text(const Index& index) {
  Json files = Json::array(), tensors = Json::array(), values = Json::array();
  for (const StoredFile& file : index.files) files.push_back(json_of(file));
  for (const StoredTensor& tensor : index.tensors) tensors.push_back(json_of(tensor));
  for (const auto& [name, value] : index.values)
    values.push_back({{"name", name},
                      {"kind", nn::state_value_kind(value)},
                      {"text", nn::state_value_text(value)}});
  const Json all = {{"tessera_checkpoint", kFormatVersion},
                    {"files", std::move(files)},
                    {"tensors", std::move(tensors)},
                    {"values", std::move(values)}};
  std::string text;
  try {
    text = all.dump();
  } catch (const Json::type_error&) {
    throw_error<InvalidArgument>(kWrite, "a name or text of the state is not UTF-8");
  }
  text.pop_back();  // the closing brace
  TESSERA_CHECK(text.size() + kTail <= kMaxIndexBytes, kWrite,
                "the index has {} bytes; at most {} can be read back", text.size() + kTail,
                kMaxIndexBytes);
  const std::string checksum = hex(checksum_of(text.data(), text.size()));
  return fmt::format("{}{}{}{}", text, kChecksumKey, checksum, kEnd);
}

Index parse_index(const std::string& path, std::string_view text) {
  const Json json = parsed(path, std::string(checked_body(path, text)) + "}");
  const Place top(path, json, "the index");
  const std::uint64_t version = top.at("tessera_checkpoint").number();
  top.check(version == kFormatVersion,
            fmt::format("has format {}; this build reads format {}", version, kFormatVersion));
  Index index;
  std::set<std::string> names;
  top.at("files").each("file", [&](const Place& place) {
    index.files.push_back(parse_file(place));
    place.check(names.insert(index.files.back().name).second,
                fmt::format("has the name \"{}\" of another", index.files.back().name));
  });
  names.clear();
  // Boxes that shared bytes could describe tensors far larger than the files.
  std::vector<std::uint64_t> unused;
  for (const StoredFile& file : index.files) unused.push_back(file.bytes);
  top.at("tensors").each("tensor", [&](const Place& place) {
    index.tensors.push_back(parse_tensor(place, index.files));
    place.check(names.insert(index.tensors.back().name).second,
                fmt::format("has the name \"{}\" of another", index.tensors.back().name));
    for (const StoredBox& stored : index.tensors.back().boxes) {
      const std::uint64_t bytes = bytes_of(place, stored.box.extent, index.tensors.back().dtype);
      place.check(bytes <= unused[stored.file], fmt::format("shares bytes of \"{}\" with another",
                                                            index.files[stored.file].name));
      unused[stored.file] -= bytes;
    }
  });
  top.at("values").each("value", [&](const Place& place) {
    const std::string& name = place.at("name").text();
    place.check(name.find('\0') == std::string::npos, "has a NUL byte in its name");
    place.check(!name.empty() && names.insert(name).second,
                fmt::format("has no name, or \"{}\", which something else has", name));
    const auto value = nn::parse_state_value(place.at("kind").text(), place.at("text").text());
    place.check(value.has_value(), fmt::format("\"{}\" has no value of its kind", name));
    index.values.set(name, *value);
  });
  return index;
}

}  // namespace tessera::checkpoint
