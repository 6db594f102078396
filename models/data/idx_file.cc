#include "tessera/models/data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "idx_file";
// Deflate never shrinks its input by more than this factor.
constexpr std::int64_t kLargestCompression = 1032;
constexpr std::size_t kReadPiece = std::size_t{4} << 20;

gzFile native(void* file) { return static_cast<gzFile>(file); }

std::int64_t big_endian(const std::uint8_t* bytes) {
  return std::int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

std::int64_t file_bytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error)
    throw_error<DataError>(kWhere, "{} cannot be read: {}; name the folder that holds the data set",
                           path, error.message());
  return static_cast<std::int64_t>(bytes);
}

// The product of the extents; the largest number there is where it has no room.
std::int64_t saturated_product(const std::vector<std::int64_t>& extents) {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents)
    if (__builtin_mul_overflow(product, extent, &product))
      return std::numeric_limits<std::int64_t>::max();
  return product;
}

}  // namespace

void IdxFile::Closer::operator()(void* file) const { gzclose(native(file)); }

IdxFile::IdxFile(std::string path, int dims) : path_(std::move(path)) {
  const std::int64_t size = file_bytes(path_);
  file_.reset(gzopen(path_.c_str(), "rb"));
  if (file_ == nullptr)
    throw_error<DataError>(kWhere, "{} cannot be opened: {}; check its permissions", path_,
                           std::strerror(errno));
  const std::size_t header_bytes = 4 * static_cast<std::size_t>(dims + 1);
  std::vector<std::uint8_t> header(header_bytes);
  const std::size_t have = read(header.data(), header_bytes);
  TESSERA_CHECK_AS(DataError, have == header_bytes, kWhere,
                   "{} ends after {} of the {} bytes of its header; get the file again", path_,
                   have, header_bytes);
  const std::int64_t magic = big_endian(header.data());
  const std::int64_t wanted = 0x800 + dims;  // 0x08: unsigned bytes
  TESSERA_CHECK_AS(DataError, magic == wanted, kWhere,
                   "{} has the magic number {:#010x}, not {:#010x} of bytes in {} dims; it is "
                   "another kind of file",
                   path_, magic, wanted, dims);
  for (int dim = 1; dim <= dims; ++dim) extents_.push_back(big_endian(&header[4 * dim]));
  const std::int64_t announced = saturated_product(extents_);
  TESSERA_CHECK_AS(DataError, announced <= size * kLargestCompression, kWhere,
                   "{} announces {} values, but a file of {} bytes holds at most {}; it is damaged",
                   path_, announced, size, size * kLargestCompression);
}

std::int64_t IdxFile::value_bytes() const { return saturated_product(extents_); }

std::size_t IdxFile::read(std::uint8_t* out, std::size_t bytes) {
  const int have = gzread(native(file_.get()), out, static_cast<unsigned>(bytes));
  int code = Z_OK;
  const char* message = gzerror(native(file_.get()), &code);
  // A file that ends early is Z_BUF_ERROR: the caller knows how much was wanted and says so.
  if (have < 0 && code != Z_BUF_ERROR)
    throw_error<DataError>(kWhere, "{} cannot be decompressed: {}; get the file again", path_,
                           code == Z_ERRNO ? std::strerror(errno) : message);
  return have < 0 ? 0 : static_cast<std::size_t>(have);
}

std::vector<std::uint8_t> IdxFile::read_values() {
  const auto wanted = static_cast<std::size_t>(value_bytes());
  std::vector<std::uint8_t> values;
  std::size_t have = 0;
  // Grows with what was really read, so that a header that lies costs no memory.
  while (have < wanted) {
    const std::size_t room = std::max(kReadPiece, 2 * have);
    values.resize(std::min(wanted, room));
    const std::size_t piece = std::min(kReadPiece, values.size() - have);
    const std::size_t got = read(values.data() + have, piece);
    have += got;
    TESSERA_CHECK_AS(DataError, got == piece, kWhere,
                     "{} is truncated: {} of {} values are there; get the file again", path_, have,
                     wanted);
  }
  // Reading past the end is also what makes zlib check the trailer.
  std::uint8_t extra = 0;
  TESSERA_CHECK_AS(DataError, read(&extra, 1) == 0, kWhere,
                   "{} goes on after the {} values that its header announces; it is damaged", path_,
                   wanted);
  int code = Z_OK;
  gzerror(native(file_.get()), &code);
  TESSERA_CHECK_AS(
      DataError, code == Z_OK || code == Z_STREAM_END, kWhere,
      "{} is truncated: its {} values are there, its checksum is not; get the file again", path_,
      wanted);
  return values;
}

}  // namespace tessera::models::data
