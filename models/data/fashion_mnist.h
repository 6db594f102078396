#pragma once

/// Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28 grey values, ten
/// classes.
///
/// A folder holds the four files of the data set under their usual names, in the idx format, with
/// or without gzip compression. Every header field is checked before memory is allocated for it,
/// and memory grows only with the data that a file really contains. Every problem is a DataError
/// that names the file, the wrong numbers and the remedy.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/models/data/gzip_reader.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models::data {

inline constexpr std::int64_t kImageRows = 28;
inline constexpr std::int64_t kImageCols = 28;
inline constexpr std::int64_t kImagePixels = kImageRows * kImageCols;
inline constexpr std::int64_t kImageClasses = 10;

/// The folder of the Debian package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

/// Images in host memory, as stored: one byte per pixel, row by row, image by image. A data set for
/// nn::data::DataLoader.
struct ImageSet {
  std::vector<std::uint8_t> pixels;  ///< [size, 28, 28]
  std::vector<std::uint8_t> labels;  ///< [size], each below 10

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
  /// An image, u8 [1, 28, 28] on the CPU, and its label. Throws InvalidArgument for an index that
  /// is out of range.
  std::pair<Tensor, std::int64_t> get(std::int64_t index) const;
};

/// A hash (XXH64) of pixels and labels.
std::uint64_t fingerprint_of(const ImageSet& set);

struct FashionMnist {
  ImageSet train;
  ImageSet test;
};

/// Reads the whole data set from a folder.
FashionMnist read_fashion_mnist(const std::string& folder);

/// Reads only the headers of the four files, to find missing or wrong files quickly.
void check_fashion_mnist(const std::string& folder);

/// Reads one file in the idx format (a big-endian header, then bytes), gzip-compressed or not, from
/// front to back.
class IdxFile {
 public:
  /// Opens the file and reads its header: the magic number of unsigned bytes in `dims` dims, then
  /// the extents. Throws DataError if it cannot be opened or read, has another magic number, or
  /// announces more bytes than a file of its size can contain.
  IdxFile(std::string path, int dims);

  const std::string& path() const { return path_; }
  const std::vector<std::int64_t>& extents() const { return extents_; }

  /// Returns everything after the header. Throws DataError unless it is exactly as long as the
  /// header says and its checksum is correct.
  std::vector<std::uint8_t> read_values();

 private:
  std::int64_t value_bytes() const;

  std::string path_;
  std::int64_t size_;
  GzipReader file_;
  std::vector<std::int64_t> extents_;
};

}  // namespace tessera::models::data
