#pragma once

/// Replaces several files together: the new files are written into a staging folder, and moved when
/// all of them are complete. Until then the files to be replaced are untouched. A process that is
/// killed before leaves only the staging folder, which the next StagingFolder clears. While files are
/// moved, the staging folder keeps the old ones: if a move fails, or the process is killed, the old
/// files are moved back.

#include <string>

#include "tessera/tensor/io/folder_marker.h"

namespace tessera {

class StagingFolder {
 public:
  /// Makes the folder, empty but for its marker. If a killed process left one, first moves the old
  /// files in it back to its parent folder, and removes it. Throws StateError tagged `where` if
  /// something else is at the path, CheckpointError if a system call fails. The caller must ensure
  /// exclusive use (file_lock.h).
  StagingFolder(const char* where, std::string path);
  /// Removes the folder and its contents, unless it was published; moves old files in it back.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::string& path() const { return path_; }
  /// True once publish_files() was called for it, by this process or another.
  bool is_published() const;

 private:
  std::string path_;
};

/// Moves the files of the folder `staging`, which is in `folder`, to `folder`: first moves the old
/// files that have a successor, or that `is_replaced` selects, into `staging`, then the new ones out
/// of it, and removes `staging`. Throws CheckpointError tagged `where` if an old file is not regular
/// or a system call fails; then both folders are as they were.
void publish_files(const char* where, const std::string& staging, const std::string& folder,
                   const NameTest& is_replaced);

}  // namespace tessera
