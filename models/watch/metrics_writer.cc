#include "tessera/models/watch/metrics_writer.h"

#include <filesystem>
#include <system_error>

#include "tessera/models/watch/run_files.h"
#include "tessera/tensor/check.h"

namespace tessera::models::watch {
namespace {

constexpr const char* kWhere = "metrics";

// The path of the file, in a folder that exists.
std::string path_in(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error<Error>(kWhere, "{} cannot be made: {}; choose another folder", folder,
                       error.message());
  return folder + "/" + kMetricsFile;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& folder, DType dtype)
    : dtype_(dtype), file_(kWhere, path_in(folder), AppendedStart::kAfterLastLine) {}

void MetricsWriter::write(const StepMetrics& metrics) {
  file_.append(json_line(metrics, dtype_) + "\n");
}

void MetricsWriter::write(const EvalMetrics& metrics) {
  file_.append(json_line(metrics, dtype_) + "\n");
}

}  // namespace tessera::models::watch
