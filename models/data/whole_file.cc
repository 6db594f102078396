#include "tessera/models/data/whole_file.h"

#include <algorithm>
#include <filesystem>

#include "tessera/models/data/gzip_reader.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr std::size_t kReadPiece = std::size_t{1} << 18;

}  // namespace

std::string read_whole_file(const std::string& path, const WholeFileOptions& options) {
  const std::string_view where = options.where;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw_error<DataError>(where, "{} cannot be read: {}; {}", path,
                           error ? error.message() : "it does not exist", options.if_missing);
  TESSERA_CHECK_AS(DataError, !std::filesystem::is_directory(status), where,
                   "{} is a folder; name a file", path);
  // A pipe gives its bytes only once, but every rank reads; some devices never end.
  TESSERA_CHECK_AS(DataError, std::filesystem::is_regular_file(status), where,
                   "{} is a pipe or a device; copy what it gives to a file, and name that", path);
  GzipReader file(path);
  std::string bytes;
  for (std::size_t got = kReadPiece, have = 0; got == kReadPiece;) {
    bytes.resize(have + kReadPiece);
    got = file.read(reinterpret_cast<std::uint8_t*>(bytes.data()) + have, kReadPiece);
    have += got;
    bytes.resize(have);
    TESSERA_CHECK_AS(DataError, static_cast<std::int64_t>(have) <= options.most, where,
                     "{} has more than the {} bytes that such a file may have; name another", path,
                     options.most);
  }
  TESSERA_CHECK_AS(DataError, !file.ended_early(), where,
                   "{} is truncated: its compressed data break off after {} bytes; get the file "
                   "again",
                   path, bytes.size());
  return bytes;
}

}  // namespace tessera::models::data
