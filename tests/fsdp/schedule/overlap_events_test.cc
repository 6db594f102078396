// Waits that affect the time of a step: of gathers for the optimizer, of compute for reductions.

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/late.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

// ---- the waits of gathers for the optimizer -----------------------------------------------------

/// A layer that is not sharded, then one that is a root.
class SlowThenLinear final : public nn::Layer<SlowThenLinear> {
 public:
  explicit SlowThenLinear(double compute_ms)
      : compute_ms_(compute_ms), linear_({.in = 4, .out = 4, .dtype = DType::kF64}) {
    register_module("linear", linear_);
  }
  Variable forward(const Variable& x) { return linear_(late(x, compute_ms_, 2 * compute_ms_)); }
  nn::Linear& linear() { return linear_; }

 private:
  double compute_ms_;
  nn::Linear linear_;
};

/// Milliseconds of five steps on rank 0.
double five_steps(const Setup& setup, bool give_event) {
  double took = 0;
  const auto rank_body = [&](distributed::World& world) {
    SlowThenLinear model(setup.forward_ms);
    fsdp::fully_shard(model.linear(),
                      {.mesh = delayed_mesh(world, setup), .reshard_after_forward = false});
    nn::initialize(model, {.seed = 1});
    nn::optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
    const Variable x(random_rows(2, 4, DType::kF64, 1), /*requires_grad=*/true);
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < 5; ++step) {
      backward(sum(model(x)));
      optimizer.step();
      if (give_event)
        fsdp::of(model.linear())
            .set_post_optim_event(current_stream(default_device()).record("optimizer"));
      optimizer.zero_grad();
    }
    current_stream(default_device()).synchronize();
    if (world.rank() == 0) took = milliseconds_since(start);
  };
  for (const std::string& error :
       exception_texts(run_ranks(2, rank_body, {.cpu_compute = setup.compute})))
    CHECK(error.empty());
  return took;
}

// By default a root's gathers wait for all work on compute, here a slow layer of the same step.
// With the optimizer's event they wait only for the optimizer and overlap that layer.
TEST_CASE("fsdp overlap: with the optimizer's event a gather hides behind the layer before",
          "[fsdp][timed]") {
  const Setup setup = {.forward_ms = 12, .gather_ms = 10};
  const double compute = 5 * 3 * setup.forward_ms;
  double without = 1e9;
  double with = 1e9;
  for (int run = 0; run < 3; ++run) {
    without = std::min(without, five_steps(setup, /*give_event=*/false));
    with = std::min(with, five_steps(setup, /*give_event=*/true));
  }
  INFO("without " << without << " ms, with " << with << " ms, computation " << compute << " ms");
  CHECK(without >= compute + 5 * setup.gather_ms);
  CHECK(with >= compute + setup.gather_ms);
  CHECK(with <= compute + 3 * setup.gather_ms);  // the first gather is exposed; the rest is for a
                                                 // slow host
}

// ---- reductions in the trace --------------------------------------------------------------------

/// For each reduction, the number of groups' post-backwards before compute waits for it.
std::vector<int> post_backwards_until_waited(const ExecutionTrace& trace, std::uint64_t compute) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> recorded;  // event -> number of
                                                                    // post-backwards before it
  std::vector<int> out;
  int so_far = 0;
  for (const TraceRecord& record : trace.records()) {
    if (const auto* a = std::get_if<TraceAnnotation>(&record))
      so_far += a->phase == "post_backward" && a->name.starts_with("block");
    const auto* event = std::get_if<EventRecord>(&record);
    if (event == nullptr) continue;
    const std::pair mark(event->event, event->mark);
    if (event->action == EventAction::kRecord && event->name == "scattered")
      recorded[mark] = so_far;
    if (event->action != EventAction::kWait || event->stream != compute) continue;
    const auto found = recorded.find(mark);
    if (found == recorded.end()) continue;
    out.push_back(so_far - found->second);
    recorded.erase(found);
  }
  return out;
}

TEST_CASE("fsdp overlap: compute waits for a reduce no earlier than its memory is needed",
          "[fsdp]") {
  for (const int buffers : {0, 1, 2}) {
    std::vector<int> waits;
    const auto rank_body = [&](distributed::World& world) {
      SlowChain model({.layers = 5, .forward_ms = 0, .backward_ms = 0});
      model.shard(world.mesh());
      fsdp::of(model).set_reduce_scatter_max_input_buffers(buffers);
      nn::initialize(model, {.seed = 1});
      ExecutionTrace trace;
      {
        const TraceScope recording(trace);
        backward(sum(model(Variable(random_rows(2, 4, DType::kF64, 1), /*requires_grad=*/true))));
      }
      if (world.rank() == 0)
        waits = post_backwards_until_waited(trace, current_stream(default_device()).id());
    };
    for (const std::string& error :
         exception_texts(run_ranks(2, rank_body, {.cpu_compute = StreamKind::kQueued})))
      CHECK(error.empty());
    // A post-backward is recorded after it ran. The end of backward waits for the last reductions.
    std::vector<int> expected;
    for (int i = 0; i < 5; ++i) expected.push_back(std::min(buffers, 5 - i));
    CHECK(waits == expected);
  }
}

}  // namespace
}  // namespace tessera::testing
