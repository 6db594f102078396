#pragma once

// Files as bytes, for tests of reading and writing.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera::testing {

// A path under TEST_TMPDIR; each `test` has a folder of its own, empty at first.
inline std::string temporary_path(const std::string& test, const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const auto folder = std::filesystem::path(base == nullptr ? "/tmp" : base) / test;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // ext4 waits for the disk when a file is truncated to nothing
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

// A safetensors file with any header, valid or not.
inline std::string safetensors_bytes(const std::string& header, const std::string& elements) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + elements;
}

}  // namespace tessera::testing
