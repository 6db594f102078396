#pragma once

/// A file that is written completely or not at all: bytes go to a temporary file in the same
/// folder, which is renamed to the path once they are on the disk. An existing file at the path
/// stays readable until then, and stays if writing fails. Only a regular file is replaced.

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/tensor/io/byte_sink.h"

namespace tessera {

class AtomicFile final : public ByteSink {
 public:
  /// Every member throws CheckpointError tagged `where`, with path and cause, if a system call
  /// fails. The constructor and commit() also throw what check_replaceable throws. `where` must
  /// outlive the object.
  AtomicFile(const char* where, std::string path);
  ~AtomicFile() override;  ///< removes the temporary file unless commit() succeeded
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes) override;
  /// Waits for the disk and renames the file to its path. Nothing may be written afterwards.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;
  void close_file();

  const char* where_;
  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

/// The kind of object at the path if it must not be replaced: "a folder", "a link" (also one to a
/// regular file), "a device", "a pipe", "a socket". Empty for a regular file and if nothing is
/// there.
std::string irregular_file(const std::string& path);

/// Throws CheckpointError tagged `where` if irregular_file() is not empty.
void check_replaceable(const char* where, const std::string& path);

/// Waits until names created, replaced or removed in a folder are on the disk: otherwise a crash of
/// the machine may restore the old ones. Throws CheckpointError.
void sync_folder(const char* where, const std::string& folder);

/// True if `name` is a temporary file that a killed process's AtomicFile for `file` left behind.
bool is_temporary_of(std::string_view name, std::string_view file);

}  // namespace tessera
