#pragma once

/// Reads one file in the idx format (a big-endian header, then bytes), gzip-compressed or not, from
/// front to back.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/models/data/gzip_reader.h"

namespace tessera::models::data {

class IdxFile {
 public:
  /// Opens the file and reads its header: the magic number of unsigned bytes in `dims` dims, then
  /// the extents. Throws DataError if it cannot be opened or read, has another magic number, or
  /// announces more bytes than a file of its size can contain.
  IdxFile(std::string path, int dims);

  const std::string& path() const { return path_; }
  const std::vector<std::int64_t>& extents() const { return extents_; }

  /// Returns everything after the header. Throws DataError unless it is exactly as long as the
  /// header says and its checksum is correct.
  std::vector<std::uint8_t> read_values();

 private:
  std::int64_t value_bytes() const;

  std::string path_;
  std::int64_t size_;
  GzipReader file_;
  std::vector<std::int64_t> extents_;
};

}  // namespace tessera::models::data
