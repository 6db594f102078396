#include "tessera/tensor/profile/profile.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/profile/profile_table.h"
#include "tessera/tensor/profile/step_reader.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

constexpr const char* kWhere = "profile";

}  // namespace

const char* profile_phase_name(ProfilePhase phase) {
  switch (phase) {
    case ProfilePhase::kForward:
      return "forward";
    case ProfilePhase::kRecompute:
      return "recompute";
    case ProfilePhase::kBackward:
      return "backward";
    case ProfilePhase::kOptimizer:
      return "optimizer";
    case ProfilePhase::kOther:
      return "other";
  }
  return "";
}

ProfileFigures& ProfileFigures::operator+=(const ProfileFigures& other) {
  calls += other.calls;
  untimed_calls += other.untimed_calls;
  total_ns += other.total_ns;
  self_ns += other.self_ns;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  bytes_sent += other.bytes_sent;
  flops += other.flops;
  return *this;
}

struct Profile::State {
  explicit State(const ProfileOptions& profile_options)
      : options{.timed = true, .max_records = profile_options.max_records} {}

  // The trace keeps its memory from step to step.
  ExecutionTrace& empty_trace() {
    if (trace)
      trace->clear();
    else
      trace.emplace(options);
    return *trace;
  }

  // Reading takes longer than a destructor should, and allocates: it waits until the figures are
  // wanted, or the trace is.
  void read_last_step() {
    if (!is_unread) return;
    is_unread = false;
    StepTimes times{.begin = begin, .stop = stop, .end = stop};
    for (const TracedWork& work : trace->work()) times.end = std::max(times.end, work.end.load());
    read_step(*trace, times, sums);
  }

  // What still runs keeps its part of the trace.
  void forget_records() {
    is_unread = false;
    trace.reset();
  }

  TraceOptions options;
  std::optional<ExecutionTrace> trace;  // of the last step, until its figures were asked for
  std::optional<TraceScope> recording;  // while a step is measured
  std::int64_t begin = 0;
  std::int64_t stop = 0;
  bool is_unread = false;
  ProfileSums sums;
};

Profile::Profile(const ProfileOptions& options) : state_(std::make_unique<State>(options)) {
  TESSERA_CHECK(options.max_records >= 1, kWhere, "max_records is 0; give 1 or more");
}

Profile::~Profile() = default;

void Profile::start() {
  State& state = *state_;
  TESSERA_CHECK_AS(StateError, !state.recording.has_value(), kWhere,
                   "start() while a step is measured, which began {:.3f} ms ago; stop() it first",
                   static_cast<double>(trace_clock() - state.begin) * 1e-6);
  const ExecutionTrace* other = active_trace();
  TESSERA_CHECK_AS(StateError, other == nullptr, kWhere,
                   "the rank writes another trace, of {} records; end that first, or the profile "
                   "that it belongs to",
                   other->records().size());
  state.read_last_step();
  current_stream(kCpu).synchronize();
  state.recording.emplace(state.empty_trace());
  state.begin = trace_clock();
}

void Profile::stop() {
  TESSERA_CHECK_AS(StateError, state_->recording.has_value(), kWhere,
                   "stop() without a step; call start() first");
  end_step();
  state_->is_unread = true;
}

void Profile::end_step() noexcept {
  State& state = *state_;
  state.stop = trace_clock();
  state.recording.reset();
  state.trace->wait_for_work();
}

Profile::Scope::Scope(Profile& profile)
    : profile_(profile), exceptions_(std::uncaught_exceptions()) {
  profile_.start();
}

// The step may have been stopped inside of the scope. After a failure, work may wait for other ranks
// until their deadline, and the failure is to be told before that.
Profile::Scope::~Scope() {
  State& state = *profile_.state_;
  if (!state.recording.has_value()) return;
  if (std::uncaught_exceptions() == exceptions_) {
    profile_.end_step();
    state.is_unread = true;
  } else {
    state.recording.reset();
    state.forget_records();
  }
}

const Profile::State& Profile::state(const char* what) const {
  TESSERA_CHECK_AS(StateError, !state_->recording.has_value(), kWhere,
                   "{} while a step is measured; stop() it first", what);
  state_->read_last_step();
  state_->forget_records();
  return *state_;
}

std::int64_t Profile::steps() const { return state("steps()").sums.steps; }
std::int64_t Profile::wall_ns() const { return state("wall_ns()").sums.wall_ns; }
std::size_t Profile::dropped() const { return state("dropped()").sums.dropped; }

std::vector<std::string> Profile::threads() const {
  std::vector<std::string> out = {kHostThread};
  for (const auto& [id, name] : state("threads()").sums.streams) out.push_back(name);
  return out;
}

std::vector<ProfileRow> Profile::rows() const {
  std::vector<ProfileRow> out;
  for (const auto& [key, figures] : state("rows()").sums.figures) {
    out.push_back({.thread = key.thread,
                   .name = key.name,
                   .kind = key.kind,
                   .phase = key.phase,
                   .module = key.module,
                   .figures = figures});
  }
  return out;
}

std::vector<ProfileRow> Profile::operations() const {
  std::map<ProfileKey, ProfileFigures> merged;
  for (const auto& [key, figures] : state("operations()").sums.figures) {
    ProfileKey without_module = key;
    without_module.module.clear();
    merged[without_module] += figures;
  }
  std::vector<ProfileRow> out;
  for (const auto& [key, figures] : merged)
    out.push_back({.thread = key.thread,
                   .name = key.name,
                   .kind = key.kind,
                   .phase = key.phase,
                   .module = {},
                   .figures = figures});
  const auto order = [](const ProfileRow& row) {
    return std::tuple(row.thread != kHostThread, row.thread == kUntimedThread, row.thread,
                      largest_first(row.figures));
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const ProfileRow& a, const ProfileRow& b) { return order(a) < order(b); });
  return out;
}

std::vector<ProfileModule> Profile::modules() const {
  const ProfileSums& sums = state("modules()").sums;
  std::map<std::string, ProfileModule> modules;
  const auto module = [&](const std::string& path) -> ProfileModule& {
    ProfileModule& found = modules[path];
    found.path = path;
    return found;
  };
  for (const auto& [path, calls] : sums.module_calls) module(path).calls = calls;
  for (const auto& [key, figures] : sums.figures) {
    if (key.kind == ProfileKind::kOutside) continue;
    const auto phase = static_cast<std::size_t>(key.phase);
    module(key.module).own[phase] += figures;
    for (const std::string& path : modules_around(key.module)) module(path).whole[phase] += figures;
  }
  std::vector<ProfileModule> out;
  for (auto& [path, figures] : modules) out.push_back(std::move(figures));
  std::stable_partition(out.begin(), out.end(),
                        [](const ProfileModule& one) { return one.path != kNoModule; });
  return out;
}

std::string Profile::table(const ProfileTableOptions& options) const {
  const ProfileSums& sums = state("table()").sums;
  return profile_table({.steps = sums.steps,
                        .wall_ns = sums.wall_ns,
                        .dropped = sums.dropped,
                        .threads = threads(),
                        .operations = operations(),
                        .modules = modules()},
                       options);
}

}  // namespace tessera
