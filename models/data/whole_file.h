#pragma once

/// All bytes of a file.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models::data {

struct WholeFileOptions {
  std::string_view where;                                     ///< tag of its errors
  std::int64_t most = std::int64_t{1} << 62;                  ///< maximum size of such a file in
                                                              ///< bytes
  std::string_view if_missing = "name a file that is there";  ///< advice if it is missing
};

/// Decompresses gzip files. Memory grows only with the data actually read. Throws DataError naming
/// the file if it is missing, not a regular file, damaged, or too large.
std::string read_whole_file(const std::string& path, const WholeFileOptions& options);

}  // namespace tessera::models::data
