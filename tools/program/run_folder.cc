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

#include "tessera/fsdp/state/state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/folder_marker.h"
#include "tessera/tools/program/options/config_file.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/options/texts.h"
#include "tessera/tools/program/train.h"
#include "tessera/tools/watch/report.h"

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
    : path_(folder + "/" + kFailureFile) {
  const std::string made = staging + "/" + kFailureFile;
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

namespace {

// The model of a configuration, after checking the version that wrote it.
std::string model_of(const std::string& path) {
  const ConfigHead head = read_config_head(path);
  const std::string version = head.version.value_or("");
  if (version != kVersion)
    throw CannotStart(
        fmt::format("{} is of tessera \"{}\", this is {}; train again", path, version, kVersion));
  const auto& names = language_family_names();
  if (std::find(names.begin(), names.end(), head.model) == names.end())
    throw CannotStart(
        fmt::format("{} is of the model \"{}\", which knows no text; name a run of {}", path,
                    head.model, joined(names, ", ")));
  return head.model;
}

TrainOptions read_options(const std::string& path, const std::string& model) {
  TrainOptions options = default_options(model);
  OptionTable table;
  fill_table(table, options);
  for (const auto& [name, word] : read_config(path, model, table)) table.find(name)->set(word);
  return options;
}

// The first few names.
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const std::size_t left = names.size() - shown.size();
  return "\"" + joined(shown, "\", \"") + "\"" +
         (left > 0 ? fmt::format(" and {} more", left) : "");
}

void check_names(const nn::LoadReport& report, const std::string& path) {
  TESSERA_CHECK_AS(CheckpointError, report.missing.empty(), "run", "{} lacks {}", path,
                   names_text(report.missing));
  TESSERA_CHECK_AS(CheckpointError, report.unexpected.empty(), "run",
                   "{} has {}, which the model of {} does not have", path,
                   names_text(report.unexpected), kConfigFile);
}

std::string with_advice(const Error& error) {
  return fmt::format(
      "{}; the weights are damaged or of another run than {}: take a copy of the "
      "folder, or train again",
      error.what(), kConfigFile);
}

}  // namespace

SavedRun open_run(const std::string& folder, const RunRanks& ranks) {
  if (!std::filesystem::is_directory(folder))
    throw CannotStart(
        fmt::format("--run: there is no folder {}; name one that train --out made", folder));
  const std::string config = folder + "/" + kConfigFile;
  SavedRun saved{
      .folder = folder, .options = read_options(config, model_of(config)), .tokenizer = nullptr};
  // The run's sharding and the way its steps were launched do not affect the weights.
  saved.options.ranks = ranks.ranks;
  if (!ranks.device.empty()) saved.options.device = ranks.device;
  saved.options.nnodes = 1;
  saved.options.tensor_parallel = 1;
  saved.options.shard = "full";
  saved.options.mesh.clear();
  saved.options.launch = "threads";
  saved.options.cuda_graphs = false;
  saved.options.timeout = TrainOptions().timeout;
  check_machine(saved.options, this_machine(saved.options));
  if (!std::filesystem::exists(folder + "/" + kModelFile))
    throw_error<Error>("run", "{} has no {}: the run did not end; train again", folder, kModelFile);
  saved.tokenizer = models::data::open_tokenizer(
      saved.options.tokenizer == "bytes" ? "bytes" : folder + "/" + kTokenizerFile);
  return saved;
}

LanguageRun load_on_ranks(const distributed::World& world, const SavedRun& saved) {
  LanguageRun run = build_on_ranks(world, saved.options, saved.tokenizer->vocab_size());
  const std::string path = saved.folder + "/" + kModelFile;
  try {
    nn::StateDict state;
    if (world.rank() == 0) state = nn::load_state(path);
    // Names are checked here, with an error text for the command line.
    const nn::LoadReport report = fsdp::load_full_state_dict(
        run.net->module(), state,
        {.strict = false, .device = world.device(), .mesh = world.mesh()});
    check_names(report, path);
  } catch (const CheckpointError& error) {
    throw CheckpointError(with_advice(error));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(with_advice(error));
  }
  return run;
}

}  // namespace tessera::tools
