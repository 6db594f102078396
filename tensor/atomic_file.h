#pragma once

/// A file that appears whole or not at all: bytes go to a temporary file in the same folder, which
/// takes the path's place once they are on the disk. What stood at the path stays readable until
/// then, and stays for good when writing fails.

#include <cstddef>
#include <string>

namespace tessera {

class AtomicFile {
 public:
  /// Every member throws CheckpointError tagged `where`, naming path and cause, when the system
  /// refuses. `where` is kept, not copied.
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
  void sync_folder() const;

  const char* where_;
  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

}  // namespace tessera
