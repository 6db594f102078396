#include "tessera/tools/tessera_run_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tessera/tensor/check.h"

namespace tessera::tools {
namespace {

std::unique_ptr<std::FILE, int (*)(std::FILE*)> open_for_writing(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr)
    throw_error<Error>("out", "{} cannot be written: {}; choose another folder", path,
                       std::strerror(errno));
  return {file, &std::fclose};
}

}  // namespace

void prepare_run_folder(const std::string& folder, const std::string& config) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error<Error>("out", "{} cannot be made: {}; choose another folder", folder,
                       error.message());
  const std::string path = folder + "/config.json";
  auto file = open_for_writing(path);
  const bool written =
      std::fputs((config + "\n").c_str(), file.get()) >= 0 && std::fflush(file.get()) == 0;
  if (!written)
    throw_error<Error>("out", "{} cannot be written: {}; make room", path, std::strerror(errno));
  open_for_writing(folder + "/metrics.jsonl");
}

MetricsFile::MetricsFile(const std::string& folder) {
  if (folder.empty()) return;
  path_ = folder + "/metrics.jsonl";
  file_.reset(open_for_writing(path_).release());
}

void MetricsFile::write(const std::string& line) {
  if (file_ == nullptr) return;
  const bool written =
      std::fputs((line + "\n").c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
  if (!written)
    throw_error<Error>("out", "{} cannot be written: {}; make room", path_, std::strerror(errno));
}

}  // namespace tessera::tools
