#include "tessera/tensor/io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::detail {
namespace {

using Json = nlohmann::json;

constexpr const char* kRead = "SafetensorsFile";
constexpr const char* kMetadataKey = "__metadata__";

struct FileDType {
  const char* name;
  std::optional<DType> dtype;
  std::uint64_t bits;
};

// Dtypes that Tessera does not have are listed so that their size is checked; dtypes that are not
// in this list are not checked.
constexpr FileDType kFileDTypes[] = {
    {"F32", DType::kF32, 32},         {"F64", DType::kF64, 64},
    {"I64", DType::kI64, 64},         {"U8", DType::kU8, 8},
    {"BF16", DType::kBF16, 16},       {"F16", DType::kF16, 16},
    {"I32", DType::kI32, 32},         {"BOOL", DType::kBool, 8},
    {"I8", std::nullopt, 8},          {"I16", std::nullopt, 16},
    {"U16", std::nullopt, 16},        {"U32", std::nullopt, 32},
    {"U64", std::nullopt, 64},        {"C64", std::nullopt, 64},
    {"F8_E4M3", std::nullopt, 8},     {"F8_E5M2", std::nullopt, 8},
    {"F8_E4M3FNUZ", std::nullopt, 8}, {"F8_E5M2FNUZ", std::nullopt, 8},
    {"F8_E8M0", std::nullopt, 8},     {"F6_E2M3", std::nullopt, 6},
    {"F6_E3M2", std::nullopt, 6},     {"F4", std::nullopt, 4},
};

const FileDType* find_dtype(std::string_view name) {
  for (const FileDType& entry : kFileDTypes) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

[[noreturn]] void throw_not_json(const std::string& path, std::size_t position) {
  throw_error<CheckpointError>(kRead, "\"{}\": the header stops being JSON at byte {}", path,
                               kSafetensorsPrefix + position);
}

// Reads the header as a stream of JSON events and accepts only what the format allows, so that a
// malicious header can neither nest deeply nor build large objects.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("true or false"); }
  bool number_integer(number_integer_t) override { refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    refuse("a number that is not whole, or too large,");
  }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      push_extent(value);
    } else if (place_ == Place::kOffsets) {
      offsets_.push_back(value);
    } else {
      refuse("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace_back(field_, std::move(value));
    } else if (place_ == Place::kTensor && field_ == "dtype") {
      current_.dtype_name = std::move(value);
    } else {
      refuse("text");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::kTop) {
      name_ = value;
      field_.clear();
      check_new(names_, value);
    } else {
      field_ = value;
      check_new(fields_, value);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kFile) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) refuse("an object");
    place_ = name_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
    fields_.clear();
    offsets_.clear();
    current_ = {};
    current_.name = name_;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      refuse("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    throw_not_json(path_, position - 1);
  }

 private:
  enum class Place { kFile, kTop, kMetadata, kTensor, kShape, kOffsets };

  std::string here() const {
    return field_.empty() ? fmt::format("\"{}\"", name_)
                          : fmt::format("\"{}\" of \"{}\"", field_, name_);
  }

  [[noreturn]] void refuse(const char* what) const {
    throw_error<CheckpointError>(
        kRead, "\"{}\": {} is {} in its header, which is not what the format allows there", path_,
        here(), what);
  }

  void check_new(std::set<std::string>& seen, const std::string& value) {
    TESSERA_CHECK_AS(CheckpointError, seen.insert(value).second, kRead,
                     "\"{}\": {} stands twice in its header", path_, here());
  }

  void push_extent(std::uint64_t extent) {
    TESSERA_CHECK_AS(CheckpointError, current_.shape.ndim() < kMaxDims, kRead,
                     "\"{}\": tensor \"{}\" has more than {} dims", path_, name_, kMaxDims);
    TESSERA_CHECK_AS(CheckpointError, extent <= std::numeric_limits<std::int64_t>::max(), kRead,
                     "\"{}\": tensor \"{}\" has an extent of {}", path_, name_, extent);
    current_.shape.push_back(static_cast<std::int64_t>(extent));
  }

  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      TESSERA_CHECK_AS(CheckpointError, fields_.count(field) != 0, kRead,
                       "\"{}\": tensor \"{}\" has no \"{}\" in the header", path_, name_, field);
    }
    TESSERA_CHECK_AS(CheckpointError, offsets_.size() == 2, kRead,
                     "\"{}\": tensor \"{}\" has {} data_offsets, not 2", path_, name_,
                     offsets_.size());
    current_.begin = offsets_[0];
    current_.end = offsets_[1];
    if (const FileDType* known = find_dtype(current_.dtype_name)) current_.dtype = known->dtype;
    header_.tensors.push_back(std::move(current_));
  }

  const std::string& path_;
  SafetensorsHeader header_;
  Place place_ = Place::kFile;
  std::string name_;   // the current top-level key
  std::string field_;  // the current key below it
  std::set<std::string> names_;
  std::set<std::string> fields_;
  SafetensorsInfo current_;
  std::vector<std::uint64_t> offsets_;
};

// Bytes that dtype and shape require; nothing if the dtype is unknown.
std::optional<std::uint64_t> needed_bytes(const std::string& path, const SafetensorsInfo& info) {
  const FileDType* known = find_dtype(info.dtype_name);
  // Extents of 0 must not hide an overflow: products of the other extents are used as strides.
  std::int64_t bits = known == nullptr ? 64 : static_cast<std::int64_t>(known->bits);
  bool empty = false;
  for (std::int64_t extent : info.shape) {
    empty = empty || extent == 0;
    TESSERA_CHECK_AS(CheckpointError, extent == 0 || !__builtin_mul_overflow(bits, extent, &bits),
                     kRead, "\"{}\": tensor \"{}\" of {} {} has too many elements", path, info.name,
                     info.dtype_name, info.shape.str());
  }
  if (known == nullptr) return std::nullopt;
  TESSERA_CHECK_AS(CheckpointError, empty || bits % 8 == 0, kRead,
                   "\"{}\": tensor \"{}\" of {} {} does not fill whole bytes", path, info.name,
                   info.dtype_name, info.shape.str());
  return empty ? 0 : static_cast<std::uint64_t>(bits) / 8;
}

std::string range_text(const SafetensorsInfo& info, std::uint64_t base) {
  return fmt::format("tensor \"{}\" at bytes [{}, {})", info.name, base + info.begin,
                     base + info.end);
}

void check_range(const std::string& path, const SafetensorsInfo& info, std::uint64_t base,
                 std::uint64_t file_bytes) {
  TESSERA_CHECK_AS(CheckpointError, info.begin <= info.end, kRead,
                   "\"{}\": tensor \"{}\" has data_offsets [{}, {}], which go backwards", path,
                   info.name, info.begin, info.end);
  TESSERA_CHECK_AS(CheckpointError, info.end <= file_bytes - base, kRead,
                   "\"{}\" is truncated: it has {} bytes, {} of them elements, and tensor \"{}\" "
                   "has data_offsets [{}, {}]",
                   path, file_bytes, file_bytes - base, info.name, info.begin, info.end);
  const std::optional<std::uint64_t> needed = needed_bytes(path, info);
  TESSERA_CHECK_AS(CheckpointError, !needed || *needed == info.end - info.begin, kRead,
                   "\"{}\": {} has {} bytes; {} {} needs {}", path, range_text(info, base),
                   info.end - info.begin, info.dtype_name, info.shape.str(), *needed);
}

// Checks that ranges follow each other without gap or overlap up to the end of the file.
void check_layout(const std::string& path, const std::vector<SafetensorsInfo>& tensors,
                  std::uint64_t base, std::uint64_t file_bytes) {
  std::vector<const SafetensorsInfo*> in_order;
  for (const SafetensorsInfo& info : tensors) {
    check_range(path, info, base, file_bytes);
    in_order.push_back(&info);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  const SafetensorsInfo* before = nullptr;
  std::uint64_t reached = 0;
  for (const SafetensorsInfo* info : in_order) {
    TESSERA_CHECK_AS(CheckpointError, info->begin >= reached, kRead, "\"{}\": {} overlaps {}", path,
                     range_text(*info, base), range_text(*before, base));
    TESSERA_CHECK_AS(CheckpointError, info->begin == reached, kRead,
                     "\"{}\": bytes [{}, {}) before {} belong to no tensor", path, base + reached,
                     base + info->begin, range_text(*info, base));
    reached = info->end;
    before = info;
  }
  TESSERA_CHECK_AS(CheckpointError, base + reached == file_bytes, kRead,
                   "\"{}\": bytes [{}, {}) at its end belong to no tensor", path, base + reached,
                   file_bytes);
}

// `before`: the error's text before the quoted one.
std::string quoted(const std::string& text, const std::string& before) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    // Escaped, because the message must be valid text too.
    throw_error<InvalidArgument>(
        "write_safetensors", "{}{} is not UTF-8; encode binary data as text", before,
        Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
  }
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ","));
}

}  // namespace

const char* safetensors_dtype_name(DType dtype) {
  for (const FileDType& entry : kFileDTypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "?";
}

std::string safetensors_header_text(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto next = [&text](char open) {
    if (text.back() != open) text += ",";
  };
  if (!header.metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : header.metadata) {
      next('{');
      const std::string name = quoted(key, "metadata ");
      text += name + ":" + quoted(value, "metadata " + name + ": ");
    }
    text += "}";
  }
  for (const SafetensorsInfo& info : header.tensors) {
    next('{');
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        quoted(info.name, "tensor "), info.dtype_name, shape_text(info.shape),
                        info.begin, info.end);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           std::uint64_t file_bytes) {
  TESSERA_CHECK_AS(CheckpointError, !text.empty() && text.front() == '{', kRead,
                   "\"{}\": the header at byte {} does not begin with {{; this is no safetensors "
                   "file",
                   path, kSafetensorsPrefix);
  // The parser would take a zero byte for the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) throw_not_json(path, zero);
  HeaderReader reader(path);
  Json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  const std::uint64_t base = kSafetensorsPrefix + text.size();
  check_layout(path, header.tensors, base, file_bytes);
  for (SafetensorsInfo& info : header.tensors) {
    info.begin += base;
    info.end += base;
  }
  return header;
}

}  // namespace tessera::detail
