#include "tessera/tools/program/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/folder_marker.h"
#include "tessera/tools/program/options/cannot_start.h"
#include "tessera/tools/watch/report.h"

namespace tessera::tools {
namespace {

constexpr const char* kWhere = "out";
constexpr const char* kKind = "run";
constexpr const char* kNextFolder = ".tessera-next";
constexpr std::string_view kEventFiles = "events.out.tfevents.";

const std::vector<std::string>& run_files() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {kConfigFile, kMetricsFile, kModelFile,   kTokenizerFile,
                                     kSampleFile, kSummaryFile, kFailureFile, kTraceFile};
    for (const std::string& name : report_files()) list.push_back(name);
    return list;
  }();
  return names;
}

std::string next_folder(const std::string& folder) { return folder + "/" + kNextFolder; }

// Creates the folder if it does not exist.
const std::string& made(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error<Error>(kWhere, "{} cannot be made: {}; choose another folder", folder,
                       error.message());
  return folder;
}

FileLock locked(const std::string& folder) {
  try {
    return lock_file(kWhere, folder_lock_path(made(folder)), folder);
  } catch (const StateError& error) {
    throw CannotStart(error.what());
  }
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file.good())
    throw_error<Error>(kWhere, "{} cannot be read: {}; name another file", path,
                       std::strerror(errno));
  return text;
}

}  // namespace

bool is_run_file(std::string_view name) {
  if (name.starts_with(kEventFiles)) return true;
  return std::any_of(run_files().begin(), run_files().end(), [name](const std::string& file) {
    return name == file || is_temporary_of(name, file);
  });
}

void check_run_folder(const std::string& folder, const std::vector<Input>& inputs) {
  check_output(folder, inputs);
  try {
    check_owned(kWhere, folder, kKind, is_run_file);
  } catch (const StateError& error) {
    throw CannotStart(error.what());
  }
  for (const std::string& name : names_in(kWhere, folder)) {
    const std::string path = folder + "/" + name;
    for (const Input& input : inputs)
      if (is_run_file(name) && is_same_file(input.path, path))
        throw CannotStart(
            fmt::format("--out: {} is what {} reads, {}, by another name; choose another folder",
                        path, input.option, input.path));
  }
}

RunFolder::RunFolder(const std::string& folder, const std::string& config,
                     const std::string& tokenizer)
    : lock_(locked(folder)), next_(kWhere, next_folder(folder)), failure_(next_.path(), folder) {
  write_text_file(next_.path() + "/" + kConfigFile, config + "\n");
  if (!tokenizer.empty())
    write_text_file(next_.path() + "/" + kTokenizerFile, contents_of(tokenizer));
}

void begin_run(const std::string& folder) {
  check_owned(kWhere, folder, kKind, is_run_file);
  mark_folder(kWhere, folder, kKind);
  publish_files(kWhere, next_folder(folder), folder, is_run_file);
}

void write_text_file(const std::string& path, const std::string& text) {
  AtomicFile file(kWhere, path);
  file.write(text.data(), text.size());
  file.commit();
}

MetricsFile::MetricsFile(const std::string& folder) : path_(folder + "/" + kMetricsFile) {
  file_.reset(std::fopen(path_.c_str(), "a"));
  if (file_ == nullptr)
    throw_error<Error>(kWhere, "{} cannot be written: {}; choose another folder", path_,
                       std::strerror(errno));
}

void MetricsFile::write(const std::string& line) {
  const bool written =
      std::fputs((line + "\n").c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
  if (!written)
    throw_error<Error>(kWhere, "{} cannot be written: {}; make room", path_, std::strerror(errno));
}

}  // namespace tessera::tools
