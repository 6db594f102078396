#pragma once

/// Reads a file from front to back. A file that begins as gzip files do is decompressed; others are
/// returned unchanged.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::models::data {

class GzipReader {
 public:
  /// Throws DataError if the file cannot be opened or read.
  explicit GzipReader(std::string path);
  ~GzipReader();
  GzipReader(GzipReader&&) noexcept;
  GzipReader& operator=(GzipReader&&) noexcept;

  /// Reads the next bytes; returns fewer than requested only at the end. Throws DataError if the
  /// file cannot be read or is damaged, including a wrong checksum or length at its end.
  std::size_t read(std::uint8_t* out, std::size_t bytes);
  /// After a short read: true if the compressed stream is truncated, even by one byte. A truncated
  /// uncompressed file cannot be detected.
  bool ended_early() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::models::data
