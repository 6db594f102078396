#pragma once

/// failure.txt of a run's folder. Its disk space is reserved at the start, so the reason can still
/// be written if the disk fills up during the run. The file is created in the staging folder
/// (run_folder.h) and moved with the other files.

#include <string>

namespace tessera::tools {

class FailureFile {
 public:
  /// Creates an empty file in `staging`. It may later be moved to `folder`, also by another
  /// process. Throws Error if it cannot be created.
  FailureFile(const std::string& staging, const std::string& folder);
  /// Removes it from the folder unless something was written.
  ~FailureFile();
  FailureFile(const FailureFile&) = delete;
  FailureFile& operator=(const FailureFile&) = delete;

  /// Writes the text and a newline. Write errors are ignored: the failure is also printed.
  void write(const std::string& text);

 private:
  std::string path_;  // in the folder
  int file_ = -1;
  bool written_ = false;
};

}  // namespace tessera::tools
