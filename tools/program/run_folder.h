#pragma once

/// The folder of one run, and the files in it.
///
/// Only the launcher of rank 0's host has a RunFolder; it writes the files that the run begins with
/// beside those of an earlier run. Rank 0 publishes them when the first step has run, and replaces
/// the earlier run by that. So a start that does not come so far leaves the folder as it was.
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

/// True for the names of all files that runs write: those above, the report and its pictures, event
/// files, and what is left of them where a run is killed while it writes.
bool is_run_file(std::string_view name);

/// Throws CannotStart, naming the file, where a run in `folder` would replace something that no run
/// wrote, and for what check_output refuses; nothing is changed. A folder with the marker of a run,
/// or with none of a run's files, is free.
void check_run_folder(const std::string& folder, const std::vector<Input>& inputs);

/// A launcher's hold on the folder of its run: locked as long as this lives.
class RunFolder {
 public:
  /// Makes the folder where it is missing, and gets config.json ready with the text, the room for
  /// failure.txt, and tokenizer.model as a copy of the file `tokenizer`, unless that is empty.
  /// Throws CannotStart where another run is in the folder.
  RunFolder(const std::string& folder, const std::string& config, const std::string& tokenizer);

  /// True once begin_run() was called, by whichever process: now the folder is this run's.
  bool has_begun() const { return next_.is_published(); }

  /// The text of failure.txt, which is kept where the run has begun.
  void write_failure(const std::string& text) { failure_.write(text); }

 private:
  FileLock lock_;
  StagingFolder next_;
  FailureFile failure_;
};

/// Marks the folder, and puts what RunFolder got ready in the place of the files of an earlier run.
/// Throws as check_owned (folder_marker.h) for what came since check_run_folder.
void begin_run(const std::string& folder);

/// Replaces the file, whole or not at all.
void write_text_file(const std::string& path, const std::string& text);

/// metrics.jsonl, open for writing behind what is in it; every line is on its way to the disk when
/// write() returns.
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
