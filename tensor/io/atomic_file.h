#pragma once

/// A file that appears whole or not at all: bytes go to a temporary file in the same folder, which
/// takes the path's place once they are on the disk. What stood at the path stays readable until
/// then, and stays for good when writing fails. Only a regular file is replaced, or nothing.

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

class AtomicFile {
 public:
  /// Every member throws CheckpointError tagged `where`, naming path and cause, when the system
  /// refuses, and the constructor and commit() also what check_replaceable throws. `where` is kept,
  /// not copied.
  AtomicFile(const char* where, std::string path);
  ~AtomicFile();  ///< removes the temporary file unless commit() came to its end
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  /// Waits for the disk and puts the file in its place. Nothing may be written afterwards.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;
  void close_file();

  const char* where_;
  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

/// What stands at the path and must not be replaced: "a folder", "a link" (also one to a regular
/// file), "a device", "a pipe", "a socket". Empty for a regular file and where there is nothing.
std::string irregular_file(const std::string& path);

/// Throws CheckpointError tagged `where` for what irregular_file() names.
void check_replaceable(const char* where, const std::string& path);

/// Waits until names that were made, replaced or removed in a folder are on the disk: without it a
/// crash of the machine may bring the old ones back. Throws CheckpointError.
void sync_folder(const char* where, const std::string& folder);

/// True if `name` is what a killed process leaves of an AtomicFile called `file`.
bool is_temporary_of(std::string_view name, std::string_view file);

}  // namespace tessera
