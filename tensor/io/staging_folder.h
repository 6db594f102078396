#pragma once

/// Replacing files together: the new ones are written into a folder of their own, and move when all
/// of them are there. Until then nothing that they replace has been touched, and a process that is
/// killed before leaves only that folder, which the next one clears. While they move, what they
/// replace is kept in that folder: where the system refuses a move, or the process is killed, the
/// old files come back.

#include <string>

#include "tessera/tensor/io/folder_marker.h"

namespace tessera {

class StagingFolder {
 public:
  /// Makes the folder, empty but for its marker; one that a killed process left is removed first,
  /// and the old files that it holds go back to the folder around it. Throws StateError tagged
  /// `where` when something else stands at the path, CheckpointError when the system refuses. The
  /// caller sees to it (file_lock.h) that nobody else uses it.
  StagingFolder(const char* where, std::string path);
  /// Removes it with what it holds, unless it was published; old files in it go back as well.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::string& path() const { return path_; }
  /// True once publish_files() was called for it, by this process or another.
  bool is_published() const;

 private:
  std::string path_;
};

/// Puts the files of the folder `staging`, which is in `folder`, in the place of those of `folder`:
/// the old files that have a successor or that `is_replaced` chooses, all regular ones, move into
/// `staging`, the new ones out of it, and `staging` is removed. Throws CheckpointError tagged
/// `where` when an old one is no regular file or the system refuses; then all is as it was.
void publish_files(const char* where, const std::string& staging, const std::string& folder,
                   const NameTest& is_replaced);

}  // namespace tessera
