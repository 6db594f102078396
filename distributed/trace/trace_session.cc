#include "tessera/distributed/trace/trace_session.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/objects.h"
#include "tessera/distributed/trace/clock_offset.h"
#include "tessera/distributed/trace/trace_event_writer.h"
#include "tessera/distributed/trace/trace_events.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "trace_session";
constexpr const char* kStepPhase = "step";
// Of barriers at each end of the trace, which show how well the clocks agree: several, since on a
// busy machine a rank may be late to see the end of one.
constexpr int kBarriers = 8;

enum class Stage { kBefore, kTracing, kOver };

void synchronize_streams(const World& world) {
  current_stream(kCpu).synchronize();
  if (!world.device().is_cpu()) current_stream(world.device()).synchronize();
}

// What goes wrong on rank 0 is known to all ranks.
void write_file(ProcessGroup& group, const std::string& path, const std::vector<RankEvents>& parts,
                const std::string& about) {
  std::string problem;
  if (group.rank() == 0) {
    try {
      const std::string text = trace_file(parts, about);
      AtomicFile file(kWhere, path);
      file.write(text.data(), text.size());
      file.commit();
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }
  problem = broadcast_text(group, problem, 0);
  if (!problem.empty())
    throw_error<CheckpointError>(kWhere, "rank 0 could not write the trace: {}", problem);
}

}  // namespace

struct TraceSession::State {
  State(const World& in, TraceSessionOptions chosen)
      : world(in),
        options(std::move(chosen)),
        trace({.timed = true, .max_records = options.max_records}) {}

  ProcessGroup& group() const { return *world.group(); }
  void barriers() const {
    for (int i = 0; i < kBarriers; ++i) barrier(group(), "trace clock");
  }
  void open_step(std::int64_t number) {
    step = number;
    annotate("trace", fmt::format("step {}", number), kStepPhase);
  }
  void close_step() { annotate("trace", fmt::format("step {}", step), "step_end"); }
  TraceView view() const {
    return {.rank = world.rank(),
            .process = fmt::format("rank {} of {}", world.rank(), world.size()),
            .shift = offset.nanoseconds - origin,
            .begin = begin,
            .end = trace_clock(),
            .held = held};
  }
  std::string about() const;

  World world;
  TraceSessionOptions options;
  ExecutionTrace trace;
  Stage stage = Stage::kBefore;
  bool is_written = false;
  std::int64_t begun_at = 0;  // the first step that is traced
  std::int64_t step = 0;      // the one that is under way
  ClockOffset offset;
  std::int64_t origin = 0;  // on the clock of rank 0
  std::int64_t begin = 0;   // on this rank's
  MemoryReading held;
};

// Every rank's figures; collective.
std::string TraceSession::State::about() const {
  const std::string mine = packed_numbers(
      {static_cast<std::int64_t>(trace.dropped()), offset.nanoseconds, offset.uncertainty});
  std::vector<std::int64_t> dropped, offsets, uncertainties;
  for (const std::string& each : gather_texts(group(), mine, 0)) {
    const std::vector<std::int64_t> figures = unpacked_numbers(each);
    dropped.push_back(figures.at(0));
    offsets.push_back(figures.at(1));
    uncertainties.push_back(figures.at(2));
  }
  TraceArgs out;
  out.add_text("format", "tessera trace 1")
      .add("ranks", world.size())
      .add("first_step", begun_at)
      .add("last_step", step)
      .add("dropped", dropped)
      .add("clock_offset_ns", offsets)
      .add("clock_uncertainty_ns", uncertainties);
  return "{" + out.members() + "}";
}

TraceSession::TraceSession(const World& world, TraceSessionOptions options) {
  TESSERA_CHECK(!options.path.empty(), kWhere, "there is no path; name the file to write");
  TESSERA_CHECK(options.first_step >= 0 && options.steps >= 1, kWhere,
                "cannot trace {} steps from step {} on; give 1 or more, from 0 or later",
                options.steps, options.first_step);
  TESSERA_CHECK(options.max_records >= 1, kWhere, "max_records is 0; give 1 or more");
  state_ = std::make_unique<State>(world, std::move(options));
}

TraceSession::~TraceSession() {
  if (is_tracing()) state_->world.context()->set_trace(nullptr);
}

bool TraceSession::is_tracing() const { return state_->stage == Stage::kTracing; }
bool TraceSession::is_written() const { return state_->is_written; }

void TraceSession::begin_step(std::int64_t step) {
  State& state = *state_;
  if (is_tracing()) {
    state.close_step();
    if (step >= state.begun_at + state.options.steps) return finish();
  } else if (state.stage == Stage::kBefore && step >= state.options.first_step) {
    start();
    state.begun_at = step;
  } else {
    return;
  }
  state.open_step(step);
}

void TraceSession::end() {
  if (!is_tracing()) return;
  state_->close_step();
  finish();
}

void TraceSession::start() {
  State& state = *state_;
  RankContext& context = *state.world.context();
  TESSERA_CHECK_AS(StateError, context.trace() == nullptr, kWhere,
                   "the rank writes another trace, of {} records; end that first",
                   context.trace()->records().size());
  synchronize_streams(state.world);
  state.offset = measure_clock_offset(state.group(), trace_clock);
  const std::string clock = broadcast_text(state.group(), packed_numbers({trace_clock()}), 0);
  state.origin = unpacked_numbers(clock).at(0);
  state.held = context.memory().current();
  state.begin = trace_clock();
  context.set_trace(&state.trace);
  state.stage = Stage::kTracing;
  state.barriers();
}

void TraceSession::finish() {
  State& state = *state_;
  synchronize_streams(state.world);
  state.barriers();
  state.world.context()->set_trace(nullptr);
  state.stage = Stage::kOver;
  state.trace.wait_for_work();
  const RankEvents mine = rank_events(state.trace, state.view());
  const std::string about = state.about();
  const std::vector<std::string> events = gather_texts(state.group(), mine.events, 0);
  const std::vector<std::string> collectives = gather_texts(state.group(), mine.collectives, 0);
  std::vector<RankEvents> parts;
  for (std::size_t i = 0; i < events.size(); ++i) parts.push_back({events[i], collectives[i]});
  state.trace.clear();
  write_file(state.group(), state.options.path, parts, about);
  state.is_written = true;
}

}  // namespace tessera::distributed
