#include "tessera/tools/program/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "tessera/tensor/check.h"
#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/config_file.h"

namespace tessera::tools {
namespace {

constexpr const char* kLeftovers[] = {kModelFile,   kTokenizerFile, kSampleFile,
                                      kSummaryFile, kFailureFile,   kTraceFile};

std::unique_ptr<std::FILE, int (*)(std::FILE*)> open_for_writing(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr)
    throw_error<Error>("out", "{} cannot be written: {}; choose another folder", path,
                       std::strerror(errno));
  return {file, &std::fclose};
}

// What would be taken for the new run's. Pictures and the report are written over at its end.
std::vector<std::filesystem::path> leftovers(const std::string& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const auto is = [&](const char* file) { return name == file; };
    const bool named = std::any_of(std::begin(kLeftovers), std::end(kLeftovers), is);
    if (named || name.starts_with("events.out.tfevents.")) found.push_back(entry.path());
  }
  return found;
}

void remove_earlier_run(const std::string& folder) {
  std::error_code error;
  for (const std::filesystem::path& path : leftovers(folder))
    if (!std::filesystem::remove(path, error) && error)
      throw_error<Error>("out", "{} cannot be removed: {}; choose another folder", path.string(),
                         error.message());
}

bool is_of_a_run(const std::string& config) {
  try {
    return read_config_head(config).version.has_value();
  } catch (const CannotStart&) {
    return false;
  }
}

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

void check_run_folder(const std::string& folder, const std::vector<std::string>& inputs) {
  const std::vector<std::filesystem::path> old = leftovers(folder);
  for (const std::string& input : inputs)
    for (const std::filesystem::path& path : old)
      if (is_same_file(input, path))
        throw CannotStart(
            fmt::format("--out: this run reads {}, which a run in {} replaces; "
                        "choose another folder",
                        input, folder));
  const std::string config = folder + "/" + kConfigFile;
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(config, ignored);
  if (is_there && std::filesystem::is_regular_file(config, ignored) && !is_of_a_run(config))
    throw CannotStart(
        fmt::format("--out: {} is of no run and would be replaced; choose another folder", config));
  if (!is_there && !old.empty())
    throw CannotStart(
        fmt::format("--out: {} is of no run and would be removed; choose another "
                    "folder",
                    old.front().string()));
}

bool is_within(const std::string& path, const std::string& folder) {
  std::error_code ignored;
  const auto inner = std::filesystem::weakly_canonical(path, ignored);
  auto outer = std::filesystem::weakly_canonical(folder, ignored);
  if (!outer.has_filename()) outer = outer.parent_path();  // "folder/"
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

void write_text_file(const std::string& path, const std::string& text) {
  auto file = open_for_writing(path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0;
  if (!written)
    throw_error<Error>("out", "{} cannot be written: {}; make room", path, std::strerror(errno));
}

void prepare_run_folder(const std::string& folder, const std::string& config) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error<Error>("out", "{} cannot be made: {}; choose another folder", folder,
                       error.message());
  remove_earlier_run(folder);
  write_text_file(folder + "/" + kConfigFile, config + "\n");
  open_for_writing(folder + "/" + kMetricsFile);
}

MetricsFile::MetricsFile(const std::string& folder) {
  if (folder.empty()) return;
  path_ = folder + "/" + kMetricsFile;
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
