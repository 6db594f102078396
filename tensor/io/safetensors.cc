#include "tessera/tensor/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <type_traits>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/input_file.h"
#include "tessera/tensor/io/safetensors_header.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr const char* kReader = "SafetensorsFile";

// A bool is a byte in the file and in the buffers; other types are themselves.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(std::string path) : file(kReader, std::move(path)) {}

  void read_header();

  const InputFile file;
  detail::SafetensorsHeader header;
  std::map<std::string, std::size_t, std::less<>> positions;
};

void SafetensorsFile::Impl::read_header() {
  const std::string& path = file.path();
  const std::uint64_t size = file.size();
  TESSERA_CHECK_AS(CheckpointError, size >= detail::kSafetensorsPrefix, kReader,
                   "\"{}\" is truncated: it has {} bytes, the length of the header needs {}", path,
                   size, detail::kSafetensorsPrefix);
  std::uint64_t length = 0;
  file.read(0, &length, sizeof(length));
  TESSERA_CHECK_AS(CheckpointError, length <= kMaxSafetensorsHeader, kReader,
                   "\"{}\": byte 0 says that the header has {} bytes; at most {} are read. Is this "
                   "a safetensors file?",
                   path, length, kMaxSafetensorsHeader);
  TESSERA_CHECK_AS(CheckpointError, length <= size - detail::kSafetensorsPrefix, kReader,
                   "\"{}\" is truncated: it has {} bytes, and the header ends at byte {}", path,
                   size, detail::kSafetensorsPrefix + length);
  std::string text(length, '\0');
  file.read(detail::kSafetensorsPrefix, text.data(), length);
  header = detail::parse_safetensors_header(path, text, size);
  for (const SafetensorsInfo& info : header.tensors) positions.emplace(info.name, positions.size());
}

SafetensorsFile::SafetensorsFile(std::string path)
    : impl_(std::make_unique<Impl>(std::move(path))) {
  impl_->read_header();
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::string& SafetensorsFile::path() const { return impl_->file.path(); }

const std::vector<SafetensorsInfo>& SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}

const SafetensorsMetadata& SafetensorsFile::metadata() const { return impl_->header.metadata; }

bool SafetensorsFile::contains(const std::string& name) const {
  return impl_->positions.count(name) != 0;
}

const SafetensorsInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = impl_->positions.find(name);
  TESSERA_CHECK(found != impl_->positions.end(), kReader,
                "\"{}\" has no tensor \"{}\" among its {}", path(), name, tensors().size());
  return tensors()[found->second];
}

Tensor SafetensorsFile::read(const std::string& name, Device device) const {
  const SafetensorsInfo& tensor = info(name);
  TESSERA_CHECK_AS(CheckpointError, tensor.dtype.has_value(), kReader,
                   "tensor \"{}\" of \"{}\" has dtype {}, which Tessera has not: convert it where "
                   "it was made",
                   name, path(), tensor.dtype_name);
  const DType dtype = *tensor.dtype;
  if (device.is_null()) return Tensor::empty(tensor.shape, {.dtype = dtype, .device = device});
  return dispatch_all(dtype, kReader, [&]<class T>() {
    std::vector<Stored<T>> values(static_cast<std::size_t>(tensor.shape.numel()));
    impl_->file.read(tensor.begin, values.data(), tensor.end - tensor.begin);
    const Tensor out = Tensor::from_vector(values, tensor.shape, device);
    return std::is_same_v<T, bool> ? cast(out, dtype) : out;
  });
}

void SafetensorsFile::read_into(const std::string& name, const Tensor& out) const {
  const SafetensorsInfo& tensor = info(name);
  TESSERA_CHECK(out.shape() == tensor.shape, kReader,
                "tensor \"{}\" of \"{}\" has shape {} and cannot be read into {}", name, path(),
                tensor.shape.str(), out.shape().str());
  copy_(out, read(name, out.device()));
}

namespace {

constexpr const char* kWriter = "write_safetensors";

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Sources = std::vector<SafetensorsSource>;

// Elements that are copied to the host at a time, where the layout allows it.
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 20;

Sources sources_of(const NamedTensors& tensors) {
  Sources sources;
  for (const auto& [name, tensor] : tensors) {
    TESSERA_CHECK(tensor.defined(), kWriter, "tensor \"{}\" is undefined", name);
    sources.push_back(
        {.name = name, .dtype = tensor.dtype(), .shape = tensor.shape(), .read = [tensor = tensor] {
           return tensor;
         }});
  }
  return sources;
}

void check_names(const Sources& tensors, const SafetensorsMetadata& metadata) {
  std::set<std::string> seen;
  for (const SafetensorsSource& tensor : tensors) {
    TESSERA_CHECK(tensor.name != "__metadata__", kWriter,
                  "a tensor cannot be called \"{}\": that is the format's name for its texts",
                  tensor.name);
    TESSERA_CHECK(seen.insert(tensor.name).second, kWriter, "tensor \"{}\" stands twice",
                  tensor.name);
  }
  seen.clear();
  for (const auto& [key, value] : metadata) {
    TESSERA_CHECK(seen.insert(key).second, kWriter, "metadata \"{}\" stands twice", key);
  }
}

// Entries whose ranges count from the first byte of the elements.
std::vector<SafetensorsInfo> entries_of(const Sources& tensors,
                                        const std::vector<std::size_t>& order) {
  std::vector<SafetensorsInfo> entries;
  for (const SafetensorsSource& tensor : tensors) {
    entries.push_back({.name = tensor.name,
                       .dtype_name = detail::safetensors_dtype_name(tensor.dtype),
                       .dtype = tensor.dtype,
                       .shape = tensor.shape});
  }
  std::uint64_t reached = 0;
  for (std::size_t i : order) {
    entries[i].begin = reached;
    reached += static_cast<std::uint64_t>(tensors[i].shape.numel()) * dtype_size(tensors[i].dtype);
    entries[i].end = reached;
  }
  return entries;
}

void write_elements(ByteSink& sink, const Tensor& tensor) {
  if (const std::int64_t count = tensor.numel();
      count > kElementsAtOnce && tensor.is_contiguous()) {
    const Tensor line = tensor.view({count});
    for (std::int64_t at = 0; at < count; at += kElementsAtOnce)
      write_elements(sink, line.narrow(0, at, std::min(kElementsAtOnce, count - at)));
    return;
  }
  dispatch_all(tensor.dtype(), kWriter, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      write_elements(sink, cast(tensor, DType::kU8));
    } else {
      const std::vector<T> values = tensor.to_vector<T>();
      sink.write(values.data(), values.size() * sizeof(T));
    }
  });
}

void write_source(ByteSink& sink, const SafetensorsSource& source) {
  const Tensor tensor = source.read();
  TESSERA_CHECK(
      tensor.defined() && tensor.dtype() == source.dtype && tensor.shape() == source.shape, kWriter,
      "the source of \"{}\", {} {}, returned {} {}", source.name, dtype_name(source.dtype),
      source.shape.str(), tensor.defined() ? dtype_name(tensor.dtype()) : "nothing",
      tensor.defined() ? tensor.shape().str() : "");
  TESSERA_CHECK_AS(StateError, !tensor.device().is_null(), kWriter,
                   "tensor \"{}\" of shape {} is on the null device and has no values: a plan "
                   "cannot be saved",
                   source.name, tensor.shape().str());
  write_elements(sink, tensor);
}

std::vector<SafetensorsInfo> write_sources(ByteSink& sink, const Sources& tensors,
                                           const SafetensorsMetadata& metadata) {
  check_names(tensors, metadata);
  std::vector<DType> dtypes;
  for (const SafetensorsSource& tensor : tensors) dtypes.push_back(tensor.dtype);
  const std::vector<std::size_t> order = safetensors_order(dtypes);
  detail::SafetensorsHeader header{.tensors = entries_of(tensors, order), .metadata = metadata};
  const std::string text = detail::safetensors_header_text(header);
  TESSERA_CHECK(text.size() <= kMaxSafetensorsHeader, kWriter,
                "names, shapes and metadata make a header of {} bytes; at most {} can be read back",
                text.size(), kMaxSafetensorsHeader);
  const std::uint64_t length = text.size();
  sink.write(&length, sizeof(length));
  sink.write(text.data(), text.size());
  for (std::size_t i : order) write_source(sink, tensors[i]);
  for (SafetensorsInfo& entry : header.tensors) {
    entry.begin += detail::kSafetensorsPrefix + length;
    entry.end += detail::kSafetensorsPrefix + length;
  }
  return std::move(header.tensors);
}

}  // namespace

std::vector<SafetensorsInfo> write_safetensors(ByteSink& sink, const NamedTensors& tensors,
                                               const SafetensorsMetadata& metadata) {
  return write_sources(sink, sources_of(tensors), metadata);
}

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata) {
  write_safetensors_from(path, sources_of(tensors), metadata);
}

// The widest first, so that each tensor starts at a multiple of its element's size.
std::vector<std::size_t> safetensors_order(const std::vector<DType>& dtypes) {
  std::vector<std::size_t> order(dtypes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_size(dtypes[a]) > dtype_size(dtypes[b]);
  });
  return order;
}

void write_safetensors_from(const std::string& path, const Sources& tensors,
                            const SafetensorsMetadata& metadata) {
  AtomicFile file(kWriter, path);
  write_sources(file, tensors, metadata);
  file.commit();
}

}  // namespace tessera
