#pragma once

/// A regular file that is read at given positions. It is read by system calls and not mapped: if another
/// process shortens a mapped file, touching the missing part ends this process.

#include <cstdint>
#include <string>

namespace tessera {

/// Several threads may read from one object.
class InputFile {
 public:
  /// Every member throws CheckpointError tagged `where`, with the path, if a system call fails; the
  /// constructor also if the path is not a regular file. `where` must outlive the object.
  InputFile(const char* where, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< in bytes, when it was opened
  /// Copies bytes [offset, offset + bytes) to `out`. Throws also if the file has shrunk.
  void read(std::uint64_t offset, void* out, std::uint64_t bytes) const;

 private:
  [[noreturn]] void fail(const char* action) const;

  const char* where_;
  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera
