#include "tessera/models/data/fashion_mnist.h"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/test_data.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;
using testing::idx_header;
using testing::read_file;
using testing::write_file;
using testing::write_gzip;

constexpr const char* kTrainImages = "/train-images-idx3-ubyte.gz";
constexpr const char* kTrainLabels = "/train-labels-idx1-ubyte.gz";
constexpr const char* kTestLabels = "/t10k-labels-idx1-ubyte.gz";

// A valid data set of 7 and 3 images, which tests then damage.
std::string good_folder() {
  const std::string folder = testing::fresh_folder("fashion");
  testing::write_fashion_mnist(folder, {.train = 7, .test = 3});
  return folder;
}

// The text of the DataError; "" if there is none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}
std::string read_error(const std::string& folder) {
  return error_of([&] { read_fashion_mnist(folder); });
}
std::string check_error(const std::string& folder) {
  return error_of([&] { check_fashion_mnist(folder); });
}

std::string images(std::uint32_t count, std::uint32_t rows, std::uint32_t cols,
                   std::size_t pixels) {
  return idx_header(0x803, {count, rows, cols}) + std::string(pixels, '\1');
}

TEST_CASE("a data set is read as it was written, compressed or not") {
  const bool compressed = GENERATE(true, false);
  const std::string folder = testing::fresh_folder("plain");
  testing::write_fashion_mnist(folder, {.train = 7, .test = 3, .compressed = compressed});
  const FashionMnist set = read_fashion_mnist(folder);
  check_fashion_mnist(folder);
  REQUIRE(set.train.size() == 7);
  REQUIRE(set.test.size() == 3);
  REQUIRE(set.train.pixels.size() == 7 * 784);
  REQUIRE(set.test.pixels.size() == 3 * 784);
  // Image 5: bright only in the two rows of its class.
  const int label = set.train.labels[5];
  const auto pixel = [&](int row) {
    return set.train.pixels[5 * 784 + static_cast<std::size_t>(row) * 28 + 13];
  };
  CHECK(pixel(2 * (label + 2)) >= 120);
  CHECK(pixel(2 * (label + 2) + 1) >= 120);
  CHECK(pixel(0) < 100);
  CHECK(pixel(27) < 100);
}

TEST_CASE("what is missing is named, with the package that has it") {
  CHECK_THAT(read_error("/no/such/folder"),
             Contains("/no/such/folder/train-images-idx3-ubyte.gz does not exist") &&
                 Contains("dataset-fashion-mnist"));
  const std::string folder = good_folder();
  std::filesystem::remove(folder + kTestLabels);
  CHECK_THAT(read_error(folder), Contains(kTestLabels) && Contains("does not exist"));
  CHECK_THAT(check_error(folder), Contains(kTestLabels) && Contains("does not exist"));
}

TEST_CASE("a folder in place of a file cannot be read") {
  const std::string folder = good_folder();
  std::filesystem::remove(folder + kTrainLabels);
  std::filesystem::create_directory(folder + kTrainLabels);
  CHECK_THAT(check_error(folder), Contains(kTrainLabels) && Contains("cannot be read"));
}

TEST_CASE("a truncated file is told by how much is there") {
  const std::string folder = good_folder();
  SECTION("in the values, compressed") {
    const std::string bytes = read_file(folder + kTrainImages);
    write_file(folder + kTrainImages, bytes.substr(0, bytes.size() / 2));
    CHECK_THAT(read_error(folder),
               Contains(kTrainImages) && Contains("is truncated") && Contains("of 5488 values"));
    CHECK(check_error(folder).empty());  // its header is valid
  }
  SECTION("in the values, before compression") {
    write_gzip(folder + kTrainImages, images(7, 28, 28, 5487));
    CHECK_THAT(read_error(folder), Contains("is truncated: 5487 of 5488 values"));
  }
  SECTION("in the header") {
    write_gzip(folder + kTrainImages, images(7, 28, 28, 0).substr(0, 9));
    CHECK_THAT(check_error(folder), Contains("ends after 9 of the 16 bytes of its header"));
  }
  SECTION("empty") {
    write_file(folder + kTrainImages, "");
    CHECK_THAT(check_error(folder), Contains("ends after 0 of the 16 bytes"));
  }
  SECTION("in the checksum") {
    const std::string bytes = read_file(folder + kTrainLabels);
    write_file(folder + kTrainLabels, bytes.substr(0, bytes.size() - 8));
    CHECK_THAT(read_error(folder), Contains(kTrainLabels) && Contains("checksum"));
  }
}

TEST_CASE("a damaged stream is an error, not other images") {
  const std::string folder = good_folder();
  std::string bytes = read_file(folder + kTrainImages);
  bytes[bytes.size() - 5] ^= 1;  // the checksum
  write_file(folder + kTrainImages, bytes);
  CHECK_THAT(read_error(folder), Contains(kTrainImages) && Contains("cannot be decompressed"));
}

// Longer than all buffers, so that all values are read before the end is checked.
TEST_CASE("the end of a long file is checked too") {
  const std::string folder = testing::fresh_folder("long");
  testing::write_fashion_mnist(folder, {.train = 5003, .test = 3});  // 3.9 MB before compression
  const std::string whole = read_file(folder + kTrainImages);
  REQUIRE(read_fashion_mnist(folder).train.size() == 5003);
  for (const std::size_t cut : {1, 4, 8}) {
    CAPTURE(cut);
    write_file(folder + kTrainImages, whole.substr(0, whole.size() - cut));
    CHECK_THAT(read_error(folder), Contains(kTrainImages) && Contains("is truncated") &&
                                       Contains("its checksum is not"));
    CHECK(check_error(folder).empty());
  }
  for (const std::size_t from_end : {1, 8}) {  // the length, the checksum
    CAPTURE(from_end);
    std::string wrong = whole;
    wrong[whole.size() - from_end] ^= 1;
    write_file(folder + kTrainImages, wrong);
    const std::string text = read_error(folder);
    CHECK_THAT(text, Contains("cannot be decompressed: incorrect"));
    CHECK(text.find(kTrainImages) == text.rfind(kTrainImages));
  }
  write_file(folder + kTrainImages, whole + "more");
  CHECK_THAT(read_error(folder), Contains("cannot be decompressed: incorrect header check"));
}

TEST_CASE("a file of several compressed streams is read as one") {
  const std::string folder = good_folder();
  const std::string all = images(7, 28, 28, 7 * 784);
  write_gzip(folder + "/a", all.substr(0, 1000));
  write_gzip(folder + "/b", all.substr(1000));
  write_file(folder + kTrainImages, read_file(folder + "/a") + read_file(folder + "/b"));
  CHECK(read_fashion_mnist(folder).train.pixels.size() == 7 * 784);
}

TEST_CASE("a wrong magic number is shown") {
  const std::string folder = good_folder();
  write_gzip(folder + kTrainImages, idx_header(0x801, {7, 28, 28}) + std::string(5488, '\0'));
  CHECK_THAT(check_error(folder), Contains("magic number 0x00000801, not 0x00000803"));
  write_file(folder + kTrainImages, "this is no gzip file at all, only text");
  CHECK_THAT(check_error(folder), Contains("magic number 0x74686973"));
}

TEST_CASE("a file that goes on is refused") {
  const std::string folder = good_folder();
  write_gzip(folder + kTrainImages, images(7, 28, 28, 5489));
  CHECK_THAT(read_error(folder), Contains("goes on after the 5488 values"));
}

TEST_CASE("counts that do not fit are refused") {
  const std::string folder = good_folder();
  SECTION("labels and images") {
    write_gzip(folder + kTrainLabels, idx_header(0x801, {8}) + std::string(8, '\0'));
    CHECK_THAT(check_error(folder), Contains("announces 8 labels for 7 images"));
  }
  SECTION("other images") {
    write_gzip(folder + kTrainImages, images(7, 32, 32, 7 * 1024));
    CHECK_THAT(check_error(folder), Contains("images of 32 x 32 pixels, expected 28 x 28"));
  }
  SECTION("none") {
    write_gzip(folder + kTrainImages, images(0, 28, 28, 0));
    CHECK_THAT(check_error(folder), Contains("holds no image"));
  }
  SECTION("a label out of range") {
    write_gzip(folder + kTrainLabels, idx_header(0x801, {7}) + std::string("\0\1\2\12\3\4\5", 7));
    CHECK_THAT(read_error(folder), Contains("label 10 at position 3"));
  }
}

TEST_CASE("a header that lies costs no memory") {
  const std::string folder = good_folder();
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  SECTION("more than a file of its size can hold") {
    write_gzip(folder + kTrainImages, images(0xffffffff, 28, 28, 100));
    CHECK_THAT(check_error(folder),
               Contains("announces 3367254359280 values") && Contains("holds at most"));
  }
  SECTION("extents whose product overflows") {
    write_gzip(folder + kTrainImages, images(0xffffffff, 0xffffffff, 0xffffffff, 100));
    CHECK_THAT(check_error(folder), Contains("holds at most"));
  }
  SECTION("as much as the best compression allows, and then ends") {
    // 3 MB of random bytes; a compressed file of that size could hold 3 GB of zeros.
    std::string noise(3 << 20, '\0');
    std::uint32_t state = 1;
    std::generate(noise.begin(), noise.end(),
                  [&] { return static_cast<char>((state = state * 1664525 + 1013904223) >> 24); });
    const std::uint32_t lie = 4'000'000;  // 3.1 GB
    write_gzip(folder + kTrainImages, idx_header(0x803, {lie, 28, 28}) + noise);
    write_gzip(folder + kTrainLabels, idx_header(0x801, {lie}) + std::string(lie, '\0'));
    CHECK_THAT(read_error(folder), Contains("is truncated: 3145728 of 3136000000 values"));
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 100 * 1024);  // kilobytes
}

}  // namespace
}  // namespace tessera::models::data
