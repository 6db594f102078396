#pragma once

/// A lock by which one process at a time may change a folder or a file. The system releases it when
/// the holder dies, for whatever reason.
///
///     const FileLock lock = lock_file("out", folder_lock_path(folder), folder);
///
/// The lock (flock) is on a file of its own. The file contains the name of its holder, for the
/// error that other processes report; the holder removes it together with the lock. A process that
/// dies leaves the file behind, and the next holder takes it over. Works between processes, between
/// threads, and between hosts if the file system supports it. Processes started by exec do not
/// inherit the lock.

#include <optional>
#include <string>

namespace tessera {

class FileLock {
 public:
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();  ///< removes the file and releases the lock

 private:
  friend std::optional<FileLock> try_lock_file(const char* where, const std::string& path,
                                               const std::string& subject);
  FileLock(int file, std::string path);

  int file_;
  std::string path_;
};

/// Returns nothing if another process or thread holds the lock. `path` is the lock's own file,
/// `subject` is what it protects, for errors. Throws CheckpointError tagged `where` if a system
/// call fails, or if the path holds another program's file, which is not touched.
std::optional<FileLock> try_lock_file(const char* where, const std::string& path,
                                      const std::string& subject);

/// Throws StateError with process and host if the lock is held elsewhere, and as above.
FileLock lock_file(const char* where, const std::string& path, const std::string& subject);

/// ".tessera-lock" in the folder.
std::string folder_lock_path(const std::string& folder);
/// ".NAME.tessera-lock" beside the file.
std::string file_lock_path(const std::string& file);

}  // namespace tessera
