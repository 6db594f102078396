#pragma once

/// The folder of one run, and the files in it.
///
/// Only the launcher on rank 0's host has a RunFolder. It prepares the run's first files in a
/// staging folder beside those of an earlier run. Rank 0 publishes them after the first step, which
/// replaces the earlier run. If the run fails before that, the folder stays as it was.
///
/// Errors are tessera::Error with the path and the system's reason.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/watch/metrics_reader.h"
#include "tessera/tensor/io/file_lock.h"
#include "tessera/tensor/io/staging_folder.h"
#include "tessera/tools/program/output_paths.h"

namespace tessera::tools {

/// failure.txt of a run's folder. Its disk space is reserved at the start, so the reason can still
/// be written if the disk fills up during the run. The file is created in the staging folder
/// (run_folder.h) and moved with the other files.
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

/// True for the names of all files that runs write: those above, the report and its charts, event
/// files, and temporary files left by a run that was killed while writing.
bool is_run_file(std::string_view name);

/// Throws CannotStart, naming the file, if a run in `folder` would replace a file that no run
/// wrote, or if check_output rejects the folder. Changes nothing. A folder with the marker of a
/// run, or without any of a run's files, is accepted.
void check_run_folder(const std::string& folder, const std::vector<Input>& inputs);

/// The launcher's ownership of the run's folder. The folder is locked while the object lives.
class RunFolder {
 public:
  /// Creates the folder if it does not exist. Prepares config.json with the text `config`, an empty
  /// failure.txt with reserved space, and tokenizer.model as a copy of the file `tokenizer`, unless
  /// that is empty. Throws CannotStart if another run is using the folder.
  RunFolder(const std::string& folder, const std::string& config, const std::string& tokenizer);

  /// True once any process has called begin_run(): the folder then belongs to this run.
  bool has_begun() const { return next_.is_published(); }

  /// Writes failure.txt. The file is kept only if the run has begun.
  void write_failure(const std::string& text) { failure_.write(text); }

 private:
  FileLock lock_;
  StagingFolder next_;
  FailureFile failure_;
};

/// Marks the folder. The files that RunFolder prepared replace the files of an earlier run. With `continued`,
/// this run goes on after that step of the earlier run: the folder keeps the earlier run's event files and
/// its metrics up to that step. Throws as check_owned (folder_marker.h) for files created since
/// check_run_folder.
void begin_run(const std::string& folder,
               const std::optional<models::watch::MetricsEnd>& continued = {});

/// Replaces the file atomically.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace tessera::tools
