#include "tessera/models/data/idx_file.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "idx_file";
// The maximum compression ratio of Deflate.
constexpr std::int64_t kLargestCompression = 1032;
constexpr std::size_t kReadPiece = std::size_t{4} << 20;

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

// The product of the extents, or the largest number if it overflows.
std::int64_t saturated_product(const std::vector<std::int64_t>& extents) {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents)
    if (__builtin_mul_overflow(product, extent, &product))
      return std::numeric_limits<std::int64_t>::max();
  return product;
}

}  // namespace

IdxFile::IdxFile(std::string path, int dims)
    : path_(std::move(path)), size_(file_bytes(path_)), file_(path_) {
  const std::size_t header_bytes = 4 * static_cast<std::size_t>(dims + 1);
  std::vector<std::uint8_t> header(header_bytes);
  const std::size_t have = file_.read(header.data(), header_bytes);
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
  TESSERA_CHECK_AS(DataError, announced <= size_ * kLargestCompression, kWhere,
                   "{} announces {} values, but a file of {} bytes holds at most {}; it is damaged",
                   path_, announced, size_, size_ * kLargestCompression);
}

std::int64_t IdxFile::value_bytes() const { return saturated_product(extents_); }

std::vector<std::uint8_t> IdxFile::read_values() {
  const auto wanted = static_cast<std::size_t>(value_bytes());
  std::vector<std::uint8_t> values;
  std::size_t have = 0;
  // The buffer grows with the data actually read, so a wrong header costs no memory.
  while (have < wanted) {
    const std::size_t room = std::max(kReadPiece, 2 * have);
    values.resize(std::min(wanted, room));
    const std::size_t piece = std::min(kReadPiece, values.size() - have);
    const std::size_t got = file_.read(values.data() + have, piece);
    have += got;
    TESSERA_CHECK_AS(DataError, got == piece, kWhere,
                     "{} is truncated: {} of {} values are there; get the file again", path_, have,
                     wanted);
  }
  // Reading past the end also checks the trailer: the checksum and the number of bytes.
  std::uint8_t extra = 0;
  TESSERA_CHECK_AS(DataError, file_.read(&extra, 1) == 0, kWhere,
                   "{} goes on after the {} values that its header announces; it is damaged", path_,
                   wanted);
  TESSERA_CHECK_AS(
      DataError, !file_.ended_early(), kWhere,
      "{} is truncated: its {} values are there, its checksum is not; get the file again", path_,
      wanted);
  return values;
}

}  // namespace tessera::models::data
