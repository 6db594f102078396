// Communication overlaps computation: sleeps simulate the work, on streams and in collectives.

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tessera/nn/init.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/late.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr fsdp::PrefetchOptions kNothingAhead = {.forward = 0,
                                                 .backward = fsdp::BackwardPrefetch::kNone};
constexpr int kSteps = 6;  // the first step, whose order is not known yet, is not counted

struct Timing {
  double forward_ms = 1e9;                       ///< of the best step
  double step_ms = 1e9;                          ///< forward and backward
  double issue_ms = 1e9;                         ///< part of it in which the host is busy
  std::vector<std::vector<std::string>> events;  ///< of each step, on rank 0
};

/// One step. The forward is waited for separately only on request, since that ends its overlap with
/// the backward.
void time_step(SlowChain& model, bool forward_alone, Timing& timing) {
  const auto start = std::chrono::steady_clock::now();
  const Variable loss =
      sum(model(Variable(random_rows(2, 4, DType::kF64, 1), /*requires_grad=*/true)));
  if (forward_alone) {
    current_stream(default_device()).synchronize();
    timing.forward_ms = std::min(timing.forward_ms, milliseconds_since(start));
  }
  backward(loss);
  if (!forward_alone) timing.issue_ms = std::min(timing.issue_ms, milliseconds_since(start));
  current_stream(default_device()).synchronize();
  if (!forward_alone) timing.step_ms = std::min(timing.step_ms, milliseconds_since(start));
}

/// Runs both threads of a local group; rank 0's times.
Timing run(const Setup& setup) {
  Timing timing;
  const auto rank_body = [&](distributed::World& world) {
    SlowChain model(setup);
    model.shard(delayed_mesh(world, setup));
    fsdp::of(model).set_prefetch(setup.prefetch);
    nn::initialize(model, {.seed = 1});
    ExecutionTrace trace;
    for (int step = 0; step < kSteps; ++step) {
      Timing mine;
      trace.clear();
      {
        const TraceScope recording(trace);
        time_step(model, /*forward_alone=*/step % 2 == 1, mine);
      }
      for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
      if (world.rank() != 0 || step == 0) continue;
      timing.forward_ms = std::min(timing.forward_ms, mine.forward_ms);
      timing.step_ms = std::min(timing.step_ms, mine.step_ms);
      timing.issue_ms = std::min(timing.issue_ms, mine.issue_ms);
      timing.events.emplace_back();
      for (const TraceAnnotation& a : trace.all<TraceAnnotation>())
        timing.events.back().push_back(a.phase + " " + a.name);
    }
  };
  for (const std::string& error :
       exception_texts(run_ranks(2, rank_body, {.cpu_compute = setup.compute})))
    CHECK(error.empty());
  return timing;
}

std::size_t place(const std::vector<std::string>& events, const std::string& event) {
  const auto found = std::find(events.begin(), events.end(), event);
  INFO(event);
  REQUIRE(found != events.end());
  return static_cast<std::size_t>(found - events.begin());
}

std::size_t last_place(const std::vector<std::string>& events, const std::string& event) {
  const auto found = std::find(events.rbegin(), events.rend(), event);
  INFO(event);
  REQUIRE(found != events.rend());
  return static_cast<std::size_t>(events.rend() - found) - 1;
}

TEST_CASE("fsdp overlap: gathers are issued before the computation that hides them",
          "[fsdp][timed]") {
  const Setup setup = {.layers = 6, .forward_ms = 5, .backward_ms = 5, .gather_ms = 2};
  const Timing ahead = run(setup);
  REQUIRE(ahead.events.size() == kSteps - 1);
  for (const std::vector<std::string>& events : ahead.events) {
    for (int i = 0; i + 1 < setup.layers; ++i) {
      const std::string here = "block" + std::to_string(i);
      const std::string next = "block" + std::to_string(i + 1);
      CHECK(place(events, "unshard " + next) < place(events, "forward " + here));
      CHECK(last_place(events, "unshard " + here) < place(events, "backward " + next));
    }
  }
  Setup serial = setup;
  serial.prefetch = kNothingAhead;
  for (const std::vector<std::string>& events : run(serial).events) {
    for (int i = 0; i + 1 < setup.layers; ++i) {
      const std::string here = "block" + std::to_string(i);
      const std::string next = "block" + std::to_string(i + 1);
      CHECK(place(events, "unshard " + next) > place(events, "forward " + here));
      CHECK(last_place(events, "unshard " + here) > place(events, "backward " + next));
    }
  }
}

// The ideal time is the first gather, all computation and the last reduction. The serial time is
// everything one after another, as with inline compute and no prefetch.
TEST_CASE("fsdp overlap: gathers and reduces hide behind computation", "[fsdp][timed]") {
  constexpr double kDelay = 8;
  const Setup setup = {
      .layers = 5, .forward_ms = 12, .backward_ms = 25, .gather_ms = kDelay, .reduce_ms = kDelay};
  const double n = setup.layers;
  const double forward = kDelay + n * setup.forward_ms;
  const double step = forward + n * setup.backward_ms + kDelay;
  const double serial_forward = n * (kDelay + setup.forward_ms);
  const double serial_step = serial_forward + n * (2 * kDelay + setup.backward_ms);
  const Timing overlapped = run(setup);
  INFO("forward " << overlapped.forward_ms << " ms, ideal " << forward << ", serial "
                  << serial_forward);
  INFO("step " << overlapped.step_ms << " ms, ideal " << step << ", serial " << serial_step);
  CHECK(overlapped.forward_ms >= forward);
  CHECK(overlapped.forward_ms <= (forward + serial_forward) / 2);
  CHECK(overlapped.step_ms >= step);
  CHECK(overlapped.step_ms <= (step + serial_step) / 2);

  Setup one_by_one = setup;
  one_by_one.compute = StreamKind::kInline;
  one_by_one.prefetch = kNothingAhead;
  const Timing serial = run(one_by_one);
  INFO("inline, nothing ahead: " << serial.step_ms << " ms");
  CHECK(serial.step_ms >= 1.1 * overlapped.step_ms);
}

TEST_CASE("fsdp overlap: the host runs ahead of both", "[fsdp][timed]") {
  for (const bool computes : {true, false}) {
    const double compute_ms = computes ? 25 : 0;
    const Timing timing = run({.layers = 4,
                               .forward_ms = compute_ms,
                               .backward_ms = compute_ms,
                               .gather_ms = computes ? 0.0 : 25.0});
    INFO("issued in " << timing.issue_ms << " ms, done after " << timing.step_ms);
    CHECK(timing.step_ms >= 100);
    CHECK(timing.issue_ms <= timing.step_ms / 5);
  }
}

}  // namespace
}  // namespace tessera::testing
