#pragma once

/// One process at a time may change a folder or a file: a lock that the system releases when its
/// holder dies, however it dies.
///
///     const FileLock lock = lock_file("out", folder_lock_path(folder), folder);
///
/// What is locked is a file of its own (flock), which names its holder for the error that others
/// get, and which the holder removes with the lock. The lock of a dead process leaves the file; the
/// next holder takes it over. It works between processes, between threads, and between hosts where
/// the file system locks across them. Processes started by exec do not inherit it.

#include <optional>
#include <string>

namespace tessera {

class FileLock {
 public:
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();  ///< removes the file and gives the lock back

 private:
  friend std::optional<FileLock> try_lock_file(const char* where, const std::string& path,
                                               const std::string& subject);
  FileLock(int file, std::string path);

  int file_;
  std::string path_;
};

/// Nothing where somebody else has the lock. `path` is the lock's own file, `subject` what it is
/// for, as errors name it. Throws CheckpointError tagged `where` when the system refuses, or when
/// another program's file is at the path, which is left alone.
std::optional<FileLock> try_lock_file(const char* where, const std::string& path,
                                      const std::string& subject);

/// Throws StateError with process and host where somebody else has it, and as above.
FileLock lock_file(const char* where, const std::string& path, const std::string& subject);

/// ".tessera-lock" in a folder.
std::string folder_lock_path(const std::string& folder);
/// ".NAME.tessera-lock" beside a file.
std::string file_lock_path(const std::string& file);

}  // namespace tessera
