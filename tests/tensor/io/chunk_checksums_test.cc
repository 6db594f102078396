#include "tessera/tensor/io/chunk_checksums.h"

#include <xxhash.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

constexpr auto kChunk = static_cast<std::size_t>(kChecksumChunk);

// Text that repeats nowhere near.
std::string bytes(std::size_t count) {
  std::string out;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    out += static_cast<char>(state >> 24);
  }
  return out;
}

std::vector<std::uint64_t> plain_checksums(const std::string& text) {
  std::vector<std::uint64_t> out;
  for (std::size_t at = 0; at < text.size(); at += kChunk)
    out.push_back(XXH3_64bits(text.data() + at, std::min(kChunk, text.size() - at)));
  return out;
}

struct Collected final : ByteSink {
  void write(const void* data, std::size_t count) override {
    text.append(static_cast<const char*>(data), count);
  }
  std::string text;
};

TEST_CASE("checksums of chunks, however the bytes arrive") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kChunk - 1, kChunk, kChunk + 1,
                                 2 * kChunk, 2 * kChunk + 7}) {
    const std::string text = bytes(size);
    CHECK(checksum_chunks(size) == plain_checksums(text).size());
    for (const std::size_t piece : {std::size_t{1000}, kChunk - 3, 3 * kChunk}) {
      Collected collected;
      ChecksumSink sink(collected);
      for (std::size_t at = 0; at < size; at += piece)
        sink.write(text.data() + at, std::min(piece, size - at));
      CHECK(collected.text == text);
      CHECK(sink.bytes() == size);
      CHECK(sink.finish() == plain_checksums(text));
    }
  }
}

TEST_CASE("bytes of a file are what was written, or an error says which are not") {
  const std::string text = bytes(2 * kChunk + 7), path = temporary_path("chunk_checksums", "file");
  write_bytes(path, text);
  const std::vector<std::uint64_t> checksums = plain_checksums(text);
  const auto read = [&](std::uint64_t offset, std::uint64_t count) {
    ChecksummedFile file("test", path, text.size(), checksums);
    std::string out(count, '?');
    file.read(offset, out.data(), count);
    file.check(offset, count);
    return out;
  };
  CHECK(read(0, text.size()) == text);
  CHECK(read(kChunk - 2, 5) == text.substr(kChunk - 2, 5));
  CHECK(read(text.size() - 1, 1) == text.substr(text.size() - 1));
  CHECK(read(3, 0).empty());

  std::string changed = text;
  changed[kChunk + 9] ^= 64;
  write_bytes(path, changed);
  CHECK(read(0, kChunk) == text.substr(0, kChunk));
  CHECK(read(2 * kChunk, 7) == text.substr(2 * kChunk));
  const std::string error = thrown<CheckpointError>([&] { read(kChunk - 1, 2); });
  CHECK(error.starts_with("[test] \"" + path +
                          "\" is damaged: bytes [1048576, 2097152) have the checksum "));
  CHECK(thrown<CheckpointError>([&] {
          ChecksummedFile("test", path, text.size(), checksums).check(0, text.size());
        }).find("bytes [1048576, 2097152)") != std::string::npos);
}

TEST_CASE("files that are not what was written are not opened") {
  const std::string path = temporary_path("chunk_checksums_errors", "file");
  const auto opened = [&](const std::string& name, std::uint64_t size) {
    return thrown<CheckpointError>(
        [&] { ChecksummedFile("test", name, size, plain_checksums(bytes(size))); });
  };
  write_bytes(path, bytes(10));
  CHECK(opened(path, 11) == "[test] \"" + path + "\" has 10 bytes; 11 were written");
  CHECK(opened(path + "x", 1) == "[test] cannot open \"" + path + "x\": No such file or directory");
  const std::string folder = path.substr(0, path.rfind('/'));
  CHECK(opened(folder, 1) == "[test] \"" + folder + "\" is not a regular file");
  // A file that shrinks while it is open.
  ChecksummedFile file("test", path, 10, plain_checksums(bytes(10)));
  std::filesystem::resize_file(path, 4);
  char byte = 0;
  CHECK(thrown<CheckpointError>([&] { file.read(1, &byte, 1); }) ==
        "[test] \"" + path +
            "\" ended at byte 4, 6 bytes before what was there when it was opened");
}

}  // namespace
}  // namespace tessera::testing
