#pragma once

/// The folder of one run: config.json and metrics.jsonl. Errors are tessera::Error with the path
/// and the system's reason.

#include <cstdio>
#include <memory>
#include <string>

namespace tessera::tools {

/// Makes the folder, writes config.json and empties metrics.jsonl, before any rank starts.
void prepare_run_folder(const std::string& folder, const std::string& config);

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
