// A folder of the test with the files of a run.
#pragma once

#include <string>

#include "tessera/models/training/metrics.h"

namespace tessera::testing {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);

// The metrics of step `i`, all derived from i.
models::StepMetrics step_metrics(std::int64_t i);

}  // namespace tessera::testing
