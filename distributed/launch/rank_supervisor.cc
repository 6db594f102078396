#include "tessera/distributed/launch/rank_supervisor.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "tessera/distributed/launch/signal_watch.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/resolved_collective.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{10};
// From the first sign of trouble: time for the others to fail by themselves and say where they
// stood; then to end.
constexpr std::chrono::milliseconds kBeforeTerm{1200};
constexpr std::chrono::milliseconds kBeforeKill{1800};

bool ended_well(const RankChild& child) {
  return WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0 && child.page->done;
}

}  // namespace

RankSupervisor::RankSupervisor(const RankEnvironment& first, int ranks, LaunchFolder& folder)
    : first_(first), folder_(folder), output_(static_cast<std::size_t>(ranks)) {
  first_.folder = folder.path();
  for (int i = 0; i < ranks; ++i) {
    const int rank = first.rank + i;
    children_.push_back({.rank = rank, .page = RankPage::create(folder.path(), rank)});
  }
}

RankSupervisor::~RankSupervisor() {
  signal_running(SIGKILL);
  for (RankChild& child : children_) {
    // Untimed: SIGKILL ends it.
    if (child.running) waitpid(child.pid, &child.status, 0);
  }
}

void RankSupervisor::start(const std::vector<std::string>& arguments,
                           const std::vector<std::vector<int>>& cores) {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    RankChild& child = children_[i];
    RankEnvironment environment = first_;
    environment.rank = child.rank;
    child.pid = spawn_self(
        arguments, environment_with(environment),
        {.streams = output_.open(i), .cores = cores.empty() ? std::vector<int>() : cores[i]});
    child.running = true;
    output_.started();
  }
}

void RankSupervisor::wait(std::chrono::milliseconds timeout,
                          const std::function<bool()>& failed_elsewhere) {
  const auto runs = [](const RankChild& child) { return child.running; };
  for (;;) {
    reap();
    note_stopped(timeout);
    if (std::none_of(children_.begin(), children_.end(), runs)) break;
    if (all_connected()) folder_.remove();
    const bool signalled = SignalWatch::received() != 0 && !hand_on_signal(working());
    const bool trouble = anything_wrong() || failed_elsewhere() || signalled;
    if (!trouble_since_ && trouble) {
      trouble_since_ = Clock::now();
      // A signal to the parent asks for an end, not for a diagnosis.
      if (SignalWatch::received() != 0) *trouble_since_ -= kBeforeTerm;
    }
    if (trouble_since_) escalate();
    output_.forward(kTick);
  }
  output_.finish(
      [&] { return trouble_since_ || SignalWatch::received() != 0 || failed_elsewhere(); });
}

void RankSupervisor::reap() {
  for (RankChild& child : children_) {
    if (!child.running) continue;
    int status = 0;
    const pid_t ended = waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
    if (ended > 0 && (WIFSTOPPED(status) || WIFCONTINUED(status))) {
      child.stopped_since = WIFSTOPPED(status) ? std::optional(Clock::now()) : std::nullopt;
      child.stop_signal = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
      continue;
    }
    child.status = status;
    // If SIGCHLD is ignored, the status is lost; the shared-memory block replaces it.
    if (ended < 0) child.status = child.page->done ? 0 : 1 << 8;
    child.running = false;
    child.end_time_ns = monotonic_ns();
  }
}

// Finds ranks that are stopped for longer than the timeout. Ranks that wait for a stopped one may fail
// a little earlier; it is the cause if it was stopped for most of their time.
void RankSupervisor::note_stopped(std::chrono::milliseconds timeout) {
  const Clock::time_point now = trouble_since_.value_or(Clock::now());
  const std::chrono::milliseconds longest = trouble_since_ ? timeout / 2 : timeout;
  for (RankChild& child : children_)
    if (child.running && child.stopped_since && now - *child.stopped_since > longest)
      child.stopped_too_long = true;
}

// Of the ranks whose work has not ended.
std::vector<StopSignal*> RankSupervisor::working() const {
  std::vector<StopSignal*> stops;
  for (const RankChild& child : children_)
    if (child.running && !child.page->done) stops.push_back(&child.page->stop);
  return stops;
}

EarlyStop RankSupervisor::early_stop() const {
  std::vector<StopSignal*> stops;
  for (const RankChild& child : children_) stops.push_back(&child.page->stop);
  return early_stop_of(stops);
}

std::string RankSupervisor::last_lines(int rank) const {
  const int index = rank - first_.rank;
  if (index < 0 || index >= static_cast<int>(children_.size())) return {};
  const std::deque<std::string> lines = output_.tail(static_cast<std::size_t>(index)).lines();
  if (lines.empty()) return {};
  std::string text = lines.size() == 1 ? fmt::format("the last line that rank {} printed:\n", rank)
                                       : fmt::format("the last {} lines that rank {} printed:\n",
                                                     lines.size(), rank);
  for (const std::string& line : lines) text += fmt::format("  {}\n", line);
  return text;
}

bool RankSupervisor::anything_wrong() const {
  return std::any_of(children_.begin(), children_.end(), [](const RankChild& child) {
    return child.page->has_failure() || child.stopped_too_long ||
           (!child.running && !ended_well(child));
  });
}

bool RankSupervisor::all_connected() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const RankChild& child) { return child.page->connected.load(); });
}

void RankSupervisor::signal_running(int signal) {
  for (RankChild& child : children_) {
    if (!child.running) continue;
    child.stopped_by_us = true;
    kill(child.pid, signal);
  }
}

void RankSupervisor::escalate() {
  const auto elapsed = Clock::now() - *trouble_since_;
  if (elapsed > kBeforeKill) {
    signal_running(SIGKILL);
  } else if (elapsed > kBeforeTerm) {
    signal_running(SIGTERM);
  }
}

namespace {

// The oldest collective that a rank stood in when it ended, or that failed it.
std::optional<FlightEntry> stuck_in(const RankChild& child) {
  for (const FlightEntry& entry : child.page->log.entries()) {
    if (entry.state == FlightState::kWaiting || entry.state == FlightState::kFailed) return entry;
  }
  return std::nullopt;
}

bool same_collective(const FlightEntry& a, const FlightEntry& b) {
  return a.group == b.group && a.sequence == b.sequence && a.op == b.op && a.label == b.label;
}

// "in all_reduce #4", "after broadcast #3" or "before its first collective".
std::string place_of(const RankChild& child) {
  if (const std::optional<FlightEntry> entry = stuck_in(child)) return "in " + entry->str();
  const std::vector<FlightEntry> all = child.page->log.entries();
  return all.empty() ? "before its first collective" : "after " + all.back().str();
}

// Ranks by the place where they stood, and the text of both.
class Places {
 public:
  void add(const std::string& place, int rank) {
    const auto known = std::find_if(places_.begin(), places_.end(),
                                    [&](const auto& each) { return each.first == place; });
    if (known != places_.end()) return known->second.push_back(rank);
    places_.push_back({place, {rank}});
  }
  // "ranks 0, 3<verb> in all_reduce #4, rank 1 in all_gather #3 (layers.1)", or nothing.
  std::string text(const char* verb) const {
    std::string text;
    for (const auto& [place, ranks] : places_)
      text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ", ranks_text(ranks),
                          text.empty() ? verb : "", place);
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::vector<int>>> places_;
};

// Where the job stood when `dead` ended.
std::string circumstances(const RankChild& dead, const std::vector<RankChild>& children) {
  Places waiting;
  for (const RankChild& child : children)
    if (child.rank != dead.rank && stuck_in(child)) waiting.add(place_of(child), child.rank);
  const std::string text = waiting.text(" waited for it");
  return text.empty() ? " " + place_of(dead) : " while " + text;
}

// "; rank 0 stood in all_gather #3 (head)": the ranks that did not come to the collective that `failure` of `child` is
// about; nothing if it is about none.
std::string others_elsewhere(const RankChild& child, const std::string& failure,
                             const std::vector<RankChild>& children) {
  const std::optional<FlightEntry> failed = stuck_in(child);
  if (!failed || failure.find(fmt::format("{} #{}", failed->op, failed->sequence)) == failure.npos)
    return {};
  Places elsewhere;
  for (const RankChild& other : children) {
    const std::optional<FlightEntry> entry = stuck_in(other);
    if (other.rank != child.rank && !other.page->done &&
        !(entry && same_collective(*entry, *failed)))
      elsewhere.add(place_of(other), other.rank);
  }
  const std::string text = elsewhere.text(" stood");
  return text.empty() ? text : "; " + text;
}

// How the rank ended if not well and not by our hand; its own account comes first.
std::optional<RankFailure> failure_of(const RankChild& child,
                                      const std::vector<RankChild>& children) {
  if (std::optional<RankFailure> told = child.page->failure(child.rank)) {
    told->text = fmt::format("rank {}: {}{}", child.rank, told->text,
                             others_elsewhere(child, told->text, children));
    return told;
  }
  RankFailure failure{.rank = child.rank, .time_ns = child.end_time_ns};
  const std::string where =
      child.page->done ? " after its work was done" : circumstances(child, children);
  if (child.stopped_too_long) {
    failure.time_ns = std::chrono::nanoseconds(child.stopped_since->time_since_epoch()).count();
    failure.text = fmt::format("rank {} was stopped by signal {} ({}) and did not go on{}",
                               child.rank, child.stop_signal, strsignal(child.stop_signal), where);
    return failure;
  }
  if (child.stopped_by_us) return std::nullopt;
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
