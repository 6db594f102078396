#pragma once

/// Checksums of a file's chunks, so that a reader of some of its bytes can tell whether they are what
/// was written: XXH3 of 64 bits (https://xxhash.com) of each chunk of kChecksumChunk bytes, the last
/// one shorter.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor/io/byte_sink.h"
#include "tessera/tensor/io/input_file.h"

namespace tessera {

inline constexpr std::uint64_t kChecksumChunk = std::uint64_t{1} << 20;

/// The number of chunks of a file.
constexpr std::uint64_t checksum_chunks(std::uint64_t bytes) {
  return bytes / kChecksumChunk + (bytes % kChecksumChunk != 0 ? 1 : 0);
}

/// The checksum of bytes.
std::uint64_t checksum_of(const void* data, std::size_t bytes);

/// Passes bytes on to another sink and computes the checksums of their chunks.
class ChecksumSink final : public ByteSink {
 public:
  /// `next` must outlive the object.
  explicit ChecksumSink(ByteSink& next);
  ~ChecksumSink() override;

  /// Throws what the other sink throws.
  void write(const void* data, std::size_t bytes) override;
  std::uint64_t bytes() const { return bytes_; }
  /// Of the bytes so far. Nothing may be written afterwards.
  std::vector<std::uint64_t> finish();

 private:
  struct State;

  ByteSink& next_;
  std::unique_ptr<State> state_;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint64_t> checksums_;
};

/// An open file whose chunks are compared with their checksums when they are read. Memory: one chunk.
/// Used by one thread at a time.
class ChecksummedFile {
 public:
  /// Throws CheckpointError tagged `where` if the path cannot be opened, is no regular file, or has not
  /// `bytes` bytes. `where` must outlive the object; `checksums` has one number for each chunk.
  ChecksummedFile(const char* where, std::string path, std::uint64_t bytes,
                  std::vector<std::uint64_t> checksums);
  /// Copies bytes [offset, offset + bytes) of the file to `out`. Throws CheckpointError that names the
  /// file and the bytes of a chunk with another checksum.
  void read(std::uint64_t offset, void* out, std::uint64_t bytes);
  /// Reads them and compares checksums only. Throws as read().
  void check(std::uint64_t offset, std::uint64_t bytes);

 private:
  void load(std::uint64_t chunk);

  const char* where_;
  InputFile file_;
  std::vector<std::uint64_t> checksums_;
  std::uint64_t loaded_ = ~std::uint64_t{0};  // the chunk in buffer_
  std::vector<std::byte> buffer_;
};

}  // namespace tessera
