#include "tessera/models/data/fashion_mnist.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include <xxhash.h>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kIdxFile = "idx_file";
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
    throw_error<DataError>(kIdxFile,
                           "{} cannot be read: {}; name the folder that holds the data set", path,
                           error.message());
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
  TESSERA_CHECK_AS(DataError, have == header_bytes, kIdxFile,
                   "{} ends after {} of the {} bytes of its header; get the file again", path_,
                   have, header_bytes);
  const std::int64_t magic = big_endian(header.data());
  const std::int64_t wanted = 0x800 + dims;  // 0x08: unsigned bytes
  TESSERA_CHECK_AS(DataError, magic == wanted, kIdxFile,
                   "{} has the magic number {:#010x}, not {:#010x} of bytes in {} dims; it is "
                   "another kind of file",
                   path_, magic, wanted, dims);
  for (int dim = 1; dim <= dims; ++dim) extents_.push_back(big_endian(&header[4 * dim]));
  const std::int64_t announced = saturated_product(extents_);
  TESSERA_CHECK_AS(DataError, announced <= size_ * kLargestCompression, kIdxFile,
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
    TESSERA_CHECK_AS(DataError, got == piece, kIdxFile,
                     "{} is truncated: {} of {} values are there; get the file again", path_, have,
                     wanted);
  }
  // Reading past the end also checks the trailer: the checksum and the number of bytes.
  std::uint8_t extra = 0;
  TESSERA_CHECK_AS(DataError, file_.read(&extra, 1) == 0, kIdxFile,
                   "{} goes on after the {} values that its header announces; it is damaged", path_,
                   wanted);
  TESSERA_CHECK_AS(
      DataError, !file_.ended_early(), kIdxFile,
      "{} is truncated: its {} values are there, its checksum is not; get the file again", path_,
      wanted);
  return values;
}

namespace {

constexpr const char* kFashionMnist = "fashion_mnist";

// The images and labels of one half; the headers have been read and match.
struct Half {
  IdxFile images;
  IdxFile labels;
};

std::string find_file(const std::string& folder, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(folder) / name;
  const std::string compressed = plain.string() + ".gz";
  std::error_code ignored;
  if (std::filesystem::exists(compressed, ignored)) return compressed;
  if (std::filesystem::exists(plain, ignored)) return plain.string();
  throw_error<DataError>(kFashionMnist,
                         "{} does not exist; install the Debian package dataset-fashion-mnist or "
                         "name the folder that holds the data set",
                         compressed);
}

Half open_half(const std::string& folder, const std::string& half) {
  Half files{.images = IdxFile(find_file(folder, half + "-images-idx3-ubyte"), 3),
             .labels = IdxFile(find_file(folder, half + "-labels-idx1-ubyte"), 1)};
  const auto& extents = files.images.extents();
  TESSERA_CHECK_AS(DataError, extents[1] == kImageRows && extents[2] == kImageCols, kFashionMnist,
                   "{} holds images of {} x {} pixels, expected {} x {}; it is another data set",
                   files.images.path(), extents[1], extents[2], kImageRows, kImageCols);
  TESSERA_CHECK_AS(DataError, extents[0] > 0, kFashionMnist,
                   "{} holds no image; get the file again", files.images.path());
  TESSERA_CHECK_AS(DataError, extents[0] == files.labels.extents()[0], kFashionMnist,
                   "{} announces {} labels for {} images; the two files do not belong together",
                   files.labels.path(), files.labels.extents()[0], extents[0]);
  return files;
}

ImageSet read_half(const std::string& folder, const std::string& half) {
  Half files = open_half(folder, half);
  ImageSet set;
  set.labels = files.labels.read_values();
  for (std::size_t i = 0; i < set.labels.size(); ++i)
    TESSERA_CHECK_AS(DataError, set.labels[i] < kImageClasses, kFashionMnist,
                     "{} has label {} at position {}, expected 0 to {}; it is damaged",
                     files.labels.path(), set.labels[i], i, kImageClasses - 1);
  set.pixels = files.images.read_values();
  return set;
}

}  // namespace

std::pair<Tensor, std::int64_t> ImageSet::get(std::int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < size(), "image_set", "image {} of {}", index, size());
  const auto at = static_cast<std::size_t>(index);
  return {Tensor::from_host(pixels.data() + at * kImagePixels, kImagePixels, DType::kU8,
                            {1, kImageRows, kImageCols}, kCpu),
          labels[at]};
}

std::uint64_t fingerprint_of(const ImageSet& set) {
  const std::uint64_t pixels = XXH64(set.pixels.data(), set.pixels.size(), 0);
  return XXH64(set.labels.data(), set.labels.size(), pixels);
}

FashionMnist read_fashion_mnist(const std::string& folder) {
  return {.train = read_half(folder, "train"), .test = read_half(folder, "t10k")};
}

void check_fashion_mnist(const std::string& folder) {
  open_half(folder, "train");
  open_half(folder, "t10k");
}

}  // namespace tessera::models::data
