#pragma once

/// The bytes of a file from front to back: decompressed where it begins as gzip files do, as they
/// are otherwise.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::models::data {

class GzipReader {
 public:
  /// Throws DataError when the file cannot be opened or read.
  explicit GzipReader(std::string path);
  ~GzipReader();
  GzipReader(GzipReader&&) noexcept;
  GzipReader& operator=(GzipReader&&) noexcept;

  /// The next bytes; fewer than asked for at the end only. Throws DataError when the file cannot be
  /// read, or is damaged: also for a checksum or length at its end that does not hold.
  std::size_t read(std::uint8_t* out, std::size_t bytes);
  /// After a read that came short: true when the compressed stream breaks off, be it in its last
  /// byte. A plain file cannot tell.
  bool ended_early() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::models::data
