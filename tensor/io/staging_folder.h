#pragma once

/// Replaces several files together: the new files are written into a staging folder, and moved when
/// all of them are complete. Until then the files to be replaced are untouched. A process that is
/// killed before leaves only the staging folder, which the next StagingFolder clears.

#include <string>

#include "tessera/tensor/io/folder_marker.h"

namespace tessera {

class StagingFolder {
 public:
  /// Makes the folder, empty but for its marker; first removes one that a killed process left.
  /// Throws StateError tagged `where` if something else is at the path, CheckpointError if a system
  /// call fails. The caller must ensure exclusive use (file_lock.h).
  StagingFolder(const char* where, std::string path);
  /// Removes the folder and its contents, unless it was published.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::string& path() const { return path_; }
  /// True once publish_files() was called for it, by this process or another.
  bool is_published() const;

 private:
  std::string path_;
};

/// Moves the files of the folder `staging` to `folder`: removes the files there that `is_replaced`
/// selects and that have no successor, renames each new file over its old one, and removes
/// `staging`. Both folders are on one file system. If a file to be removed or replaced is not
/// regular, throws CheckpointError tagged `where` before anything is changed. Throws
/// CheckpointError if a system call fails.
void publish_files(const char* where, const std::string& staging, const std::string& folder,
                   const NameTest& is_replaced);

}  // namespace tessera
