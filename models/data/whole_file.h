#pragma once

/// All bytes of a file.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models::data {

struct WholeFileOptions {
  std::string_view where;                                     ///< tag of errors
  std::int64_t most = std::int64_t{1} << 62;                  ///< bytes that such a file may have
  std::string_view if_missing = "name a file that is there";  ///< what to do
};

/// Unpacked where gzip packed it. Memory grows only with what is read. Throws DataError naming the
/// file when it is missing, no regular file, damaged, or too large.
std::string read_whole_file(const std::string& path, const WholeFileOptions& options);

}  // namespace tessera::models::data
