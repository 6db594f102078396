#pragma once

/// The folder of one run, and the files in it. Errors are tessera::Error with the path and the
/// system's reason.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace tessera::tools {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kTokenizerFile = "tokenizer.model";
inline constexpr const char* kSampleFile = "sample.txt";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kFailureFile = "failure.txt";
inline constexpr const char* kTraceFile = "trace.json";

/// Throws CannotStart, naming the file, where a run in `folder` would replace something that no run
/// wrote, or one of the `inputs` that it reads itself; nothing is changed. A folder with a
/// config.json of a run, or with none of a run's files, is free.
void check_run_folder(const std::string& folder, const std::vector<std::string>& inputs);

/// Is `path` the folder, or anywhere below it?
bool is_within(const std::string& path, const std::string& folder);

/// Makes the folder, removes what an earlier run left there, writes config.json and empties
/// metrics.jsonl, before any rank starts.
void prepare_run_folder(const std::string& folder, const std::string& config);

/// Replaces the file.
void write_text_file(const std::string& path, const std::string& text);

/// metrics.jsonl, open for writing from its start; every line is on its way to the disk when
/// write() returns.
class MetricsFile {
 public:
  /// An empty folder: nothing is written.
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
