#pragma once

/// failure.txt of a run's folder, for which room is taken at the start: where the disk fills up
/// while the run goes on, the reason can still be written. It is made among the files that the run
/// begins with (run_folder.h), and moves with them.

#include <string>

namespace tessera::tools {

class FailureFile {
 public:
  /// Makes it, empty, in `staging`; may be moved to `folder` by anybody. Throws Error where it
  /// cannot be made.
  FailureFile(const std::string& staging, const std::string& folder);
  /// Removes it from the folder unless something was written.
  ~FailureFile();
  FailureFile(const FailureFile&) = delete;
  FailureFile& operator=(const FailureFile&) = delete;

  /// The text and an end of line. What cannot be written is left out: it is told elsewhere too.
  void write(const std::string& text);

 private:
  std::string path_;  // in the folder
  int file_ = -1;
  bool written_ = false;
};

}  // namespace tessera::tools
