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

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/tensor/io/file_lock.h"
#include "tessera/tensor/io/staging_folder.h"
#include "tessera/tools/program/language_run.h"
#include "tessera/tools/program/options/train_options.h"
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

/// A run that `tessera train --out` left: the input of `generate` and `eval`.
struct SavedRun {
  std::string folder;
  TrainOptions options;  ///< of the run, except those of ranks
  std::unique_ptr<models::data::Tokenizer> tokenizer;
};

struct RunRanks {
  int ranks = 1;
  std::string device;  ///< "cpu", "cuda"; empty: the run's
};
/// Reads config.json and the tokenizer of a language-model run, to be used by rank threads. Throws
/// CannotStart for a folder without a run, a run of another kind of model or another version, and a
/// device that cannot be used; Error if the model's file is missing.
SavedRun open_run(const std::string& folder, const RunRanks& ranks);

/// The model with its saved parameters. Collective.
LanguageRun load_on_ranks(const distributed::World& world, const SavedRun& saved);

}  // namespace tessera::tools
