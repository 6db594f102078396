#include "tessera/tests/models/data/idx_writer.h"

#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace tessera::testing {
namespace {

constexpr int kRows = 28;
constexpr int kCols = 28;

struct Half {
  std::string images;
  std::string labels;
};

Half synthetic_half(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  const auto size = static_cast<std::uint32_t>(count);
  Half half{.images = idx_header(0x803, {size, kRows, kCols}), .labels = idx_header(0x801, {size})};
  for (std::int64_t i = 0; i < count; ++i) {
    const int label = static_cast<int>(random() % 10);
    half.labels.push_back(static_cast<char>(label));
    for (int row = 0; row < kRows; ++row)
      for (int col = 0; col < kCols; ++col) {
        const unsigned signal = row / 2 == label + 2 ? 120 : 0;
        half.images.push_back(static_cast<char>(signal + random() % 100));
      }
  }
  return half;
}

}  // namespace

std::string fresh_folder(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::filesystem::path folder =
      std::filesystem::path(base == nullptr ? "/tmp" : base) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder.string();
}

std::string idx_header(std::uint32_t magic, const std::vector<std::uint32_t>& extents) {
  std::string bytes;
  const auto append = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  };
  append(magic);
  for (const std::uint32_t extent : extents) append(extent);
  return bytes;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_gzip(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb1");
  if (file == nullptr) throw std::runtime_error("cannot write " + path);
  const int written =
      bytes.empty() ? 0 : gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  if (gzclose(file) != Z_OK || written != static_cast<int>(bytes.size()))
    throw std::runtime_error("cannot write " + path);
}

void write_fashion_mnist(const std::string& folder, const SyntheticOptions& options) {
  const auto write = [&](const std::string& name, const std::string& bytes) {
    if (options.compressed)
      write_gzip(folder + "/" + name + ".gz", bytes);
    else
      write_file(folder + "/" + name, bytes);
  };
  const Half train = synthetic_half(options.train, 1);
  const Half test = synthetic_half(options.test, 2);
  write("train-images-idx3-ubyte", train.images);
  write("train-labels-idx1-ubyte", train.labels);
  write("t10k-images-idx3-ubyte", test.images);
  write("t10k-labels-idx1-ubyte", test.labels);
}

}  // namespace tessera::testing
