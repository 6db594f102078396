#include "tessera/tools/program/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "tessera/models/watch/report.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/folder_marker.h"
#include "tessera/tools/program/options/output.h"

namespace tessera::tools {
namespace {

constexpr std::size_t kRoom = 16 * 1024;  // more than the text of any failure

// True if the open file is the one at the path. The file there may be an earlier run's.
bool is_at(int file, const std::string& path) {
  struct stat mine = {}, named = {};
  return ::fstat(file, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

}  // namespace

FailureFile::FailureFile(const std::string& staging, const std::string& folder)
    : path_(folder + "/" + models::kFailureFile) {
  const std::string made = staging + "/" + models::kFailureFile;
  file_ = ::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0)
    throw_error<Error>("out", "{} cannot be written: {}; choose another folder", made,
                       std::strerror(errno));
  // Reserves space beyond its end. File systems without reservations go without.
  if (::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kRoom)) == 0 || errno != ENOSPC)
    return;
  ::close(file_);
  throw_error<Error>("out", "{} cannot be written: {}; make room", made, std::strerror(ENOSPC));
}

FailureFile::~FailureFile() {
  if (!written_ && is_at(file_, path_)) ::unlink(path_.c_str());
  ::close(file_);
}

void FailureFile::write(const std::string& text) {
  const std::string line = text.substr(0, kRoom - 1) + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(file_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  written_ = done > 0;
}

namespace {

constexpr const char* kWhere = "out";
constexpr const char* kKind = "run";
constexpr const char* kNextFolder = ".tessera-next";
constexpr std::string_view kEventFiles = "events.out.tfevents.";

const std::vector<std::string>& run_files() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {
        models::kConfigFile,    models::kMetricsFile, models::kModelFile,
        models::kTokenizerFile, models::kSampleFile,  models::kSummaryFile,
        models::kFailureFile,   models::kTraceFile,   models::kProfileFile};
    for (const std::string& name : models::watch::report_files()) list.push_back(name);
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
  write_text_file(next_.path() + "/" + models::kConfigFile, config + "\n");
  if (!tokenizer.empty())
    write_text_file(next_.path() + "/" + models::kTokenizerFile, contents_of(tokenizer));
}

namespace {

// Copies what a continued run keeps beside the new files, which replace the old ones together.
void stage_earlier(const std::string& folder, const models::watch::MetricsEnd& end) {
  const std::string next = next_folder(folder) + "/";
  for (const std::string& name : names_in(kWhere, folder)) {
    const std::string path = folder + "/" + name;
    if (name == models::kMetricsFile)
      write_text_file(next + name, models::watch::metrics_until(path, end));
    if (name.starts_with(kEventFiles)) write_text_file(next + name, contents_of(path));
  }
}

}  // namespace

void begin_run(const std::string& folder,
               const std::optional<models::watch::MetricsEnd>& continued) {
  check_owned(kWhere, folder, kKind, is_run_file);
  mark_folder(kWhere, folder, kKind);
  if (continued) stage_earlier(folder, *continued);
  publish_files(kWhere, next_folder(folder), folder, is_run_file);
}

void write_text_file(const std::string& path, const std::string& text) {
  AtomicFile file(kWhere, path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace tessera::tools
