#pragma once

/// A file that grows by whole records: lines, or the frames of an event file.

#include <cstdint>
#include <string>

namespace tessera::models::watch {

enum class AppendedStart : std::uint8_t {
  kNew,            ///< the file must not exist
  kAfterLastLine,  ///< what an existing file has behind its last line end, half a line, is removed
};

/// Open for appending. Movable. Used by one thread.
class AppendedFile {
 public:
  /// `where` is the tag of its errors. Throws Error with path and reason.
  AppendedFile(const char* where, std::string path, AppendedStart start);
  ~AppendedFile();
  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  /// Passes the record to the system before it returns. If that is not possible (disk full), the
  /// file is truncated to its previous end, and Error says path and reason.
  void append(const std::string& record);

 private:
  const char* where_;
  std::string path_;
  int file_ = -1;
};

}  // namespace tessera::models::watch
