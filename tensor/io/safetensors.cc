#include "tessera/tensor/io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <type_traits>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/safetensors_header.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr const char* kWhere = "SafetensorsFile";

// A bool is a byte in the file and in the buffers; other types are themselves.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(std::string path_in) : path(std::move(path_in)) {}
  ~Impl() {
    if (file >= 0) ::close(file);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[noreturn]] void fail(const char* action) const {
    throw_error<CheckpointError>(kWhere, "cannot {} \"{}\": {}", action, path,
                                 std::strerror(errno));
  }
  // Opens the file and returns its size.
  std::uint64_t open();
  void read_bytes(std::uint64_t offset, void* out, std::uint64_t bytes) const;
  void read_header();

  const std::string path;
  int file = -1;
  detail::SafetensorsHeader header;
  std::map<std::string, std::size_t, std::less<>> positions;
};

std::uint64_t SafetensorsFile::Impl::open() {
  file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  if (file < 0) fail("open");
  struct stat status = {};
  if (::fstat(file, &status) != 0) fail("read");
  TESSERA_CHECK_AS(CheckpointError, S_ISREG(status.st_mode), kWhere, "\"{}\" is not a regular file",
                   path);
  return static_cast<std::uint64_t>(status.st_size);
}

void SafetensorsFile::Impl::read_bytes(std::uint64_t offset, void* out, std::uint64_t bytes) const {
  auto* next = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const ssize_t count = ::pread(file, next, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read");
    TESSERA_CHECK_AS(CheckpointError, count > 0, kWhere,
                     "\"{}\" ended at byte {}, {} bytes before what was there when it was opened",
                     path, offset, bytes);
    next += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

void SafetensorsFile::Impl::read_header() {
  const std::uint64_t size = open();
  TESSERA_CHECK_AS(CheckpointError, size >= detail::kSafetensorsPrefix, kWhere,
                   "\"{}\" is truncated: it has {} bytes, the length of the header needs {}", path,
                   size, detail::kSafetensorsPrefix);
  std::uint64_t length = 0;
  read_bytes(0, &length, sizeof(length));
  TESSERA_CHECK_AS(CheckpointError, length <= kMaxSafetensorsHeader, kWhere,
                   "\"{}\": byte 0 says that the header has {} bytes; at most {} are read. Is this "
                   "a safetensors file?",
                   path, length, kMaxSafetensorsHeader);
  TESSERA_CHECK_AS(CheckpointError, length <= size - detail::kSafetensorsPrefix, kWhere,
                   "\"{}\" is truncated: it has {} bytes, and the header ends at byte {}", path,
                   size, detail::kSafetensorsPrefix + length);
  std::string text(length, '\0');
  read_bytes(detail::kSafetensorsPrefix, text.data(), length);
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

const std::string& SafetensorsFile::path() const { return impl_->path; }

const std::vector<SafetensorsInfo>& SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}

const SafetensorsMetadata& SafetensorsFile::metadata() const { return impl_->header.metadata; }

bool SafetensorsFile::contains(const std::string& name) const {
  return impl_->positions.count(name) != 0;
}

const SafetensorsInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = impl_->positions.find(name);
  TESSERA_CHECK(found != impl_->positions.end(), kWhere, "\"{}\" has no tensor \"{}\" among its {}",
                path(), name, tensors().size());
  return tensors()[found->second];
}

Tensor SafetensorsFile::read(const std::string& name, Device device) const {
  const SafetensorsInfo& tensor = info(name);
  TESSERA_CHECK_AS(CheckpointError, tensor.dtype.has_value(), kWhere,
                   "tensor \"{}\" of \"{}\" has dtype {}, which Tessera has not: convert it where "
                   "it was made",
                   name, path(), tensor.dtype_name);
  const DType dtype = *tensor.dtype;
  if (device.is_null()) return Tensor::empty(tensor.shape, {.dtype = dtype, .device = device});
  return dispatch_all(dtype, kWhere, [&]<class T>() {
    std::vector<Stored<T>> values(static_cast<std::size_t>(tensor.shape.numel()));
    impl_->read_bytes(tensor.begin, values.data(), tensor.end - tensor.begin);
    const Tensor out = Tensor::from_vector(values, tensor.shape, device);
    return std::is_same_v<T, bool> ? cast(out, dtype) : out;
  });
}

void SafetensorsFile::read_into(const std::string& name, const Tensor& out) const {
  const SafetensorsInfo& tensor = info(name);
  TESSERA_CHECK(out.shape() == tensor.shape, kWhere,
                "tensor \"{}\" of \"{}\" has shape {} and cannot be read into {}", name, path(),
                tensor.shape.str(), out.shape().str());
  copy_(out, read(name, out.device()));
}

}  // namespace tessera
