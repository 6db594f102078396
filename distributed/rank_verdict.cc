#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

#include <optional>

#include "tessera/distributed/rank_supervisor.h"
#include "tessera/distributed/resolved_collective.h"

namespace tessera::distributed {
namespace {

// The oldest collective that a rank stood in when it ended, or that failed it.
std::optional<FlightEntry> stuck_in(const RankChild& child) {
  for (const FlightEntry& entry : child.page->log.entries()) {
    if (entry.state == FlightState::kWaiting || entry.state == FlightState::kFailed) return entry;
  }
  return std::nullopt;
}

bool same_collective(const FlightEntry& a, const FlightEntry& b) {
  return a.group == b.group && a.sequence == b.sequence && a.op == b.op;
}

// Where the job stood when `dead` ended: who waited for it and in what.
std::string circumstances(const RankChild& dead, const std::vector<RankChild>& children) {
  std::optional<FlightEntry> awaited;
  std::vector<int> waiting;
  for (const RankChild& child : children) {
    if (child.rank == dead.rank) continue;
    const std::optional<FlightEntry> entry = stuck_in(child);
    if (!entry) continue;
    if (!awaited || entry->sequence < awaited->sequence) {
      awaited = entry;
      waiting.clear();
    }
    if (same_collective(*awaited, *entry)) waiting.push_back(child.rank);
  }
  if (awaited) return fmt::format(" while {} waited for it in {}", ranks_text(waiting), awaited->str());
  if (const std::optional<FlightEntry> own = stuck_in(dead)) return " in " + own->str();
  const std::vector<FlightEntry> own = dead.page->log.entries();
  return own.empty() ? " before its first collective" : " after " + own.back().str();
}

// How the rank ended if not well and not by our hand; its own account comes first.
std::optional<RankFailure> failure_of(const RankChild& child, const std::vector<RankChild>& children) {
  if (std::optional<RankFailure> told = child.page->failure(child.rank)) {
    told->text = fmt::format("rank {}: {}", child.rank, told->text);
    return told;
  }
  if (child.stopped_by_us) return std::nullopt;
  RankFailure failure{.rank = child.rank, .time_ns = child.end_time_ns};
  const std::string where =
      child.page->done ? " after its work was done" : circumstances(child, children);
  if (WIFSIGNALED(child.status)) {
    const int signal = WTERMSIG(child.status);
    failure.text = fmt::format("rank {} was killed by signal {} ({}){}", child.rank, signal, strsignal(signal), where);
    return failure;
  }
  if (WEXITSTATUS(child.status) == 0 && child.page->done) return std::nullopt;
  failure.text = fmt::format("rank {} exited with code {}{}", child.rank, WEXITSTATUS(child.status), where);
  return failure;
}

}  // namespace

std::string first_failure_text(const std::vector<RankChild>& children) {
  std::vector<RankFailure> failures;
  for (const RankChild& child : children) {
    if (std::optional<RankFailure> failure = failure_of(child, children)) failures.push_back(std::move(*failure));
  }
  const RankFailure* first = first_failure(failures);
  return first == nullptr ? "" : first->text;
}

}  // namespace tessera::distributed
