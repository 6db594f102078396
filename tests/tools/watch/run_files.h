// A folder of a test's own with the files of a run in it.
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

// Step `i` of a run whose figures can be told from i.
models::StepMetrics step_metrics(std::int64_t i);

}  // namespace tessera::testing
