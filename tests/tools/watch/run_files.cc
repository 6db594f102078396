#include "tessera/tests/tools/watch/run_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tessera::testing {

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "watch-test-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

models::StepMetrics step_metrics(std::int64_t i) {
  const auto x = static_cast<double>(i);
  return {.step = i,
          .loss = 10 / x,
          .grad_norm = 1 + 1 / x,
          .learning_rate = 1e-4 * x,
          .samples = 3,
          .tokens = 300,
          .step_ms = 150,
          .peak_bytes = 1000000 + i,
          .gathered_peak_bytes = 5000,
          .comm_bytes = 700,
          .collectives = 11};
}

}  // namespace tessera::testing
