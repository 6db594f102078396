#pragma once

/// The folder of one run, and the files in it.
///
/// Only the launcher on rank 0's host has a RunFolder. It prepares the run's first files in a
/// staging folder beside those of an earlier run. Rank 0 publishes them after the first step, which
/// replaces the earlier run. If the run fails before that, the folder stays as it was.
///
/// Errors are tessera::Error with the path and the system's reason.

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/io/file_lock.h"
#include "tessera/tensor/io/staging_folder.h"
#include "tessera/tools/program/failure_file.h"
#include "tessera/tools/program/output_paths.h"

namespace tessera::tools {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kTokenizerFile = "tokenizer.model";
inline constexpr const char* kSampleFile = "sample.txt";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kFailureFile = "failure.txt";
inline constexpr const char* kTraceFile = "trace.json";

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

/// Marks the folder and replaces the files of an earlier run by those that RunFolder prepared.
/// Throws as check_owned (folder_marker.h) for files created since check_run_folder.
void begin_run(const std::string& folder);

/// Replaces the file atomically.
void write_text_file(const std::string& path, const std::string& text);

/// metrics.jsonl, open for appending. When write() returns, the system has the line.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& folder);
  void write(const std::string& line);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace tessera::tools
