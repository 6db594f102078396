// The folders step-N of a run.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <string_view>

#include "tessera/distributed/objects.h"
#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/folder_marker.h"

namespace tessera::checkpoint {
namespace {

using distributed::first_text;
using distributed::on_first_rank;

constexpr std::string_view kStep = "step-";

// Nothing for another name, also for "step-007": each step has one name.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  std::int64_t step = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, step);
  if (error != std::errc() || stop != end || digits != std::to_string(step)) return std::nullopt;
  return step;
}

std::string problem_of(const std::string& folder) {
  try {
    StoredCheckpoint stored(folder);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

// First out of sight: a folder that is half removed is no checkpoint.
void remove_folder(const std::string& folder) {
  std::random_device source;
  const std::filesystem::path path(folder);
  const std::string hidden = fmt::format("{}/.{}.{:08x}{:08x}.removed", path.parent_path().string(),
                                         path.filename().string(), source(), source());
  std::error_code error;
  std::filesystem::rename(folder, hidden, error);
  if (!error) std::filesystem::remove_all(hidden, error);
  TESSERA_CHECK_AS(CheckpointError, !error, "checkpoint.keep_newest", "cannot remove \"{}\": {}",
                   folder, error.message());
}

}  // namespace

std::string step_folder(const std::string& parent, std::int64_t step) {
  return fmt::format("{}/{}{}", parent.empty() ? "." : parent, kStep, step);
}

std::vector<StepCheckpoint> list(const std::string& parent) {
  std::vector<StepCheckpoint> all;
  for (const std::string& name : names_in("checkpoint.list", parent)) {
    const auto step = step_of(name);
    if (!step) continue;
    const std::string folder = step_folder(parent, *step);
    all.push_back({.step = *step, .folder = folder, .problem = problem_of(folder)});
  }
  std::sort(all.begin(), all.end(),
            [](const StepCheckpoint& a, const StepCheckpoint& b) { return a.step < b.step; });
  return all;
}

std::optional<std::string> newest(const std::string& parent) {
  const std::vector<StepCheckpoint> all = list(parent);
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [](const StepCheckpoint& each) { return each.problem.empty(); });
  return found == all.rend() ? std::nullopt : std::optional(found->folder);
}

std::optional<std::string> load_newest(const std::string& parent, const State& state,
                                       const LoadOptions& options) {
  // The first rank decides: another might see a folder that is just being made or removed.
  std::vector<std::string> found;  // the newest first
  on_first_rank(state.group.get(), [&] {
    for (const StepCheckpoint& each : list(parent)) {
      if (each.problem.empty()) found.insert(found.begin(), each.folder);
    }
  });
  found =
      distributed::unpacked_texts(first_text(state.group.get(), distributed::packed_texts(found)));
  if (found.empty()) return std::nullopt;
  try {
    load(found[0], state, options);
  } catch (const CheckpointError& failed) {
    if (found.size() == 1) throw;
    throw CheckpointError(fmt::format("{}; before it there is \"{}\"", failed.what(), found[1]));
  }
  return found[0];
}

void keep_newest(const std::string& parent, int count) {
  TESSERA_CHECK(count >= 1, "checkpoint.keep_newest", "count is {}; at least one is kept", count);
  const std::vector<StepCheckpoint> all = list(parent);
  int kept = 0;
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    if (each->problem.empty() && ++kept > count) remove_folder(each->folder);
  }
}

}  // namespace tessera::checkpoint
