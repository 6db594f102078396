#include "tessera/tests/models/data/test_data.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>
#include <vector>

#include <rapidcheck.h>
#include <zlib.h>

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

namespace {

// Any code point except surrogates.
std::uint32_t any_code_point() {
  const auto kind = *rc::gen::inRange(0, 4);
  if (kind == 0) return *rc::gen::inRange<std::uint32_t>(0x80, 0x800);
  if (kind == 1) return *rc::gen::inRange<std::uint32_t>(0x800, 0xd800);
  if (kind == 2) return *rc::gen::inRange<std::uint32_t>(0xe000, 0x10000);
  return *rc::gen::inRange<std::uint32_t>(0x10000, 0x110000);
}

std::string repeated(const std::string& unit, int most) {
  std::string text;
  for (int count = *rc::gen::inRange(1, most); count > 0; --count) text += unit;
  return text;
}

std::string random_part() {
  static const std::vector<std::string> special = {"\xe2\x96\x81",
                                                   "\xe2\x96\x85",
                                                   "<unk>",
                                                   "</s>",
                                                   "<s>",
                                                   "<0x41>",
                                                   "\xef\xbb\xbf",
                                                   "\r\n",
                                                   "\xf0\x9f\x98\x80",
                                                   "e\xcc\x81",
                                                   "\xef\xac\x81",
                                                   "\xc2\xa0",
                                                   "\xe3\x80\x80",
                                                   "\xe2\x96"
                                                   "\x82"};
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      return repeated(" ", 20);
    case 1:
      return repeated("\n", 5);
    case 2:
      return repeated("\t", 3);
    case 3:
      return std::string(1, static_cast<char>(*rc::gen::inRange(0, 32)));
    case 4:
      return *rc::gen::elementOf(special);
    case 5:
      return utf8_of(any_code_point());
    case 6:
      return repeated(utf8_of(any_code_point()), 10);
    default:
      return plain_text(static_cast<std::size_t>(*rc::gen::inRange(1, 60)),
                        static_cast<unsigned>(*rc::gen::inRange(0, 1000)));
  }
}

}  // namespace

std::string utf8_of(std::uint32_t code_point) {
  const auto low = [&](int shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3f));
  };
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  if (code_point < 0x800) return {static_cast<char>(0xc0 | code_point >> 6), low(0)};
  if (code_point < 0x10000) return {static_cast<char>(0xe0 | code_point >> 12), low(6), low(0)};
  return {static_cast<char>(0xf0 | code_point >> 18), low(12), low(6), low(0)};
}

std::string plain_text(std::size_t bytes, unsigned seed) {
  static constexpr std::array kWords = {"the",    "model", "returns", "a",     "list",  "of",
                                        "values", "when",  "it",      "reads", "file",  "and",
                                        "raises", "error", "for",     "each",  "class", "in"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    if (random() % 6 == 0) text += "    ";
    for (unsigned words = 2 + random() % 9; words > 0; --words) {
      text += kWords[random() % kWords.size()];
      text += words > 1 ? " " : "";
    }
    text += random() % 4 == 0 ? ".\n\n" : "\n";
  }
  text.resize(bytes);
  return text;
}

std::string random_text() {
  std::string text;
  for (int parts = *rc::gen::inRange(0, 20); parts > 0; --parts) text += random_part();
  return text;
}

}  // namespace tessera::testing
