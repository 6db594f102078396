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
#include <vector>

namespace tessera::models::data {

inline constexpr std::int64_t kImageRows = 28;
inline constexpr std::int64_t kImageCols = 28;
inline constexpr std::int64_t kImagePixels = kImageRows * kImageCols;
inline constexpr std::int64_t kImageClasses = 10;

/// The folder of the Debian package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

/// Images in host memory, as stored: one byte per pixel, row by row, image by image.
struct ImageSet {
  std::vector<std::uint8_t> pixels;  ///< [count, 28, 28]
  std::vector<std::uint8_t> labels;  ///< [count], each below 10

  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

struct FashionMnist {
  ImageSet train;
  ImageSet test;
};

/// Reads the whole data set from a folder.
FashionMnist read_fashion_mnist(const std::string& folder);

/// Reads only the headers of the four files, to find missing or wrong files quickly.
void check_fashion_mnist(const std::string& folder);

}  // namespace tessera::models::data
