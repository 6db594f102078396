#include "tessera/models/data/fashion_mnist.h"

#include <filesystem>
#include <utility>

#include "tessera/models/data/idx_file.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "fashion_mnist";

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
  throw_error<DataError>(kWhere,
                         "{} does not exist; install the Debian package dataset-fashion-mnist or "
                         "name the folder that holds the data set",
                         compressed);
}

Half open_half(const std::string& folder, const std::string& half) {
  Half files{.images = IdxFile(find_file(folder, half + "-images-idx3-ubyte"), 3),
             .labels = IdxFile(find_file(folder, half + "-labels-idx1-ubyte"), 1)};
  const auto& extents = files.images.extents();
  TESSERA_CHECK_AS(DataError, extents[1] == kImageRows && extents[2] == kImageCols, kWhere,
                   "{} holds images of {} x {} pixels, expected {} x {}; it is another data set",
                   files.images.path(), extents[1], extents[2], kImageRows, kImageCols);
  TESSERA_CHECK_AS(DataError, extents[0] > 0, kWhere, "{} holds no image; get the file again",
                   files.images.path());
  TESSERA_CHECK_AS(DataError, extents[0] == files.labels.extents()[0], kWhere,
                   "{} announces {} labels for {} images; the two files do not belong together",
                   files.labels.path(), files.labels.extents()[0], extents[0]);
  return files;
}

ImageSet read_half(const std::string& folder, const std::string& half) {
  Half files = open_half(folder, half);
  ImageSet set;
  set.labels = files.labels.read_values();
  for (std::size_t i = 0; i < set.labels.size(); ++i)
    TESSERA_CHECK_AS(DataError, set.labels[i] < kImageClasses, kWhere,
                     "{} has label {} at position {}, expected 0 to {}; it is damaged",
                     files.labels.path(), set.labels[i], i, kImageClasses - 1);
  set.pixels = files.images.read_values();
  return set;
}

}  // namespace

FashionMnist read_fashion_mnist(const std::string& folder) {
  return {.train = read_half(folder, "train"), .test = read_half(folder, "t10k")};
}

void check_fashion_mnist(const std::string& folder) {
  open_half(folder, "train");
  open_half(folder, "t10k");
}

}  // namespace tessera::models::data
