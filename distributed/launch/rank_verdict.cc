#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/distributed/launch/rank_supervisor.h"
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

// "ranks 0, 3 waited for it in all_reduce #4, rank 1 in all_gather #3 (layers.1)", or nothing.
std::string waiting_text(const RankChild& dead, const std::vector<RankChild>& children) {
  std::vector<std::pair<FlightEntry, std::vector<int>>> places;
  for (const RankChild& child : children) {
    const std::optional<FlightEntry> entry = stuck_in(child);
    if (child.rank == dead.rank || !entry) continue;
    const auto known = std::find_if(places.begin(), places.end(), [&](const auto& place) {
      return same_collective(place.first, *entry);
    });
    if (known == places.end()) {
      places.push_back({*entry, {child.rank}});
    } else {
      known->second.push_back(child.rank);
    }
  }
  std::string text;
  for (const auto& [entry, ranks] : places)
    text += fmt::format("{}{}{} in {}", text.empty() ? "" : ", ", ranks_text(ranks),
                        text.empty() ? " waited for it" : "", entry.str());
  return text;
}

// Where the job stood when `dead` ended.
std::string circumstances(const RankChild& dead, const std::vector<RankChild>& children) {
  const std::string waiting = waiting_text(dead, children);
  if (!waiting.empty()) return " while " + waiting;
  if (const std::optional<FlightEntry> own = stuck_in(dead)) return " in " + own->str();
  const std::vector<FlightEntry> own = dead.page->log.entries();
  return own.empty() ? " before its first collective" : " after " + own.back().str();
}

// How the rank ended if not well and not by our hand; its own account comes first.
std::optional<RankFailure> failure_of(const RankChild& child,
                                      const std::vector<RankChild>& children) {
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
    failure.text = fmt::format("rank {} was killed by signal {} ({}){}", child.rank, signal,
                               strsignal(signal), where);
    return failure;
  }
  if (WEXITSTATUS(child.status) == 0 && child.page->done) return std::nullopt;
  failure.text =
      fmt::format("rank {} exited with code {}{}", child.rank, WEXITSTATUS(child.status), where);
  return failure;
}

}  // namespace

std::optional<RankFailure> first_failure_of(const std::vector<RankChild>& children) {
  std::vector<RankFailure> failures;
  for (const RankChild& child : children) {
    if (std::optional<RankFailure> failure = failure_of(child, children))
      failures.push_back(std::move(*failure));
  }
  const RankFailure* first = first_failure(failures);
  if (first == nullptr) return std::nullopt;
  return *first;
}

}  // namespace tessera::distributed
