#pragma once

/// Replacing files together: the new ones are written into a folder of their own, and move when all
/// of them are there. Until then nothing that they replace has been touched, and a process that is
/// killed before leaves only that folder, which the next one clears.

#include <string>

#include "tessera/tensor/io/folder_marker.h"

namespace tessera {

class StagingFolder {
 public:
  /// Makes the folder, empty but for its marker; one that a killed process left is removed first.
  /// Throws StateError tagged `where` when something else stands at the path, CheckpointError when
  /// the system refuses. The caller sees to it (file_lock.h) that nobody else uses it.
  StagingFolder(const char* where, std::string path);
  /// Removes it with what it holds, unless it was published.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::string& path() const { return path_; }
  /// True once publish_files() was called for it, by this process or another.
  bool is_published() const;

 private:
  std::string path_;
};

/// Puts the files of the folder `staging` in the place of those of `folder`: removes what
/// `is_replaced` chooses there and has no successor, renames each new file over its old one, and
/// removes `staging`. Both are on one file system. Everything that would go is a regular file, or
/// CheckpointError tagged `where` is thrown before anything has changed. Throws CheckpointError
/// when the system refuses.
void publish_files(const char* where, const std::string& staging, const std::string& folder,
                   const NameTest& is_replaced);

}  // namespace tessera
