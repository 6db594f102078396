// The share of the communication of sharded training that is hidden behind computation, on one GPU:
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_overlap
//
// One rank of a fake world of 8 trains a chain of linear layers, each a group: forward and
// backward. The computation is real. A collective fills its outputs with made-up values and takes
// its time as a kernel that only sleeps, on the collective's stream. Steps with and without that
// sleep are run in turns; each begins and ends with an idle GPU.
//
// `delay_us` is the sleep of one collective, `collectives` the number in a step. `hidden` is the
// share of all sleeps that does not make a step longer. Two collectives can never be hidden: the
// first gather, before there is anything to compute, and the last reduction. `ideal` is the share
// of the others, as long as a delay is shorter than the computation of one layer (`of_layer`: delay
// divided by a layer's forward). `ratio` is hidden / ideal. With --smoke: small, also without a
// GPU.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/transports/process_group_fake.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tools/bench/bench_gpu_support.h"
#include "tessera/tools/bench/bench_support.h"

namespace tessera {
namespace {

constexpr int kRanks = 8;

struct Mode {
  const char* name;
  bool reshard_after_forward;
  fsdp::PrefetchOptions prefetch = {};
};

constexpr Mode kModes[] = {
    {.name = "gathered again", .reshard_after_forward = true},
    {.name = "kept after forward", .reshard_after_forward = false},
    // Shows the effect of gathering ahead.
    {.name = "nothing ahead",
     .reshard_after_forward = true,
     .prefetch = {.forward = 0, .backward = fsdp::BackwardPrefetch::kNone}},
};

// The delay of collectives now, and their total sleep in this step.
struct Lateness {
  double delay_ms = 0;
  int collectives = 0;
};

class Overlap {
 public:
  Overlap(const BenchRun& run, const Mode& mode)
      : run_(run),
        mode_(mode),
        layers_(run.smoke ? 3 : 12),
        width_(run.smoke ? 8 : 4096),
        lateness_(std::make_shared<Lateness>()),
        chain_(layers_, {.in = width_, .out = width_, .bias = false, .dtype = DType::kBF16}),
        x_(random_tensor({run.smoke ? 4 : 8192, width_},
                         {.dtype = DType::kBF16, .device = run.device}, "x")) {
    const auto cost = [late = lateness_](const distributed::ProcessGroup&,
                                         const distributed::Collective&) {
      ++late->collectives;
      return late->delay_ms;
    };
    const auto group = distributed::make_fake_group(
        "world", {.size = kRanks, .data = distributed::FakeData::kRepeat, .cost = cost});
    const fsdp::FullyShardOptions options = {.mesh = {"data", group, run.device},
                                             .reshard_after_forward = mode.reshard_after_forward};
    for (const auto& layer : chain_.layers()) fsdp::fully_shard(*layer, options);
    fsdp::fully_shard(chain_, options).set_prefetch(mode.prefetch);
    nn::initialize(chain_, {.seed = 1, .device = run.device});
    parameters_ = chain_.parameters();
    for (int i = 0; i < 3; ++i) step(0);  // until the order is known and pools are filled
  }

  // Collectives that take `share` of the time of a layer's forward.
  void measure(double share) {
    std::vector<double> free;
    for (int i = 0; i < run_.pairs(); ++i) free.push_back(step(0));
    // A backward computes twice as much as the forward.
    const double delay_us = share * median(free) / (3 * layers_);
    std::vector<double> exposed;
    for (int pair = 0; pair < run_.pairs(); ++pair) {
      const double without = step(0);
      exposed.push_back(step(delay_us * 1e-3) - without);
    }
    const double slept = delay_us * lateness_->collectives;
    const double hidden = 1 - median(exposed) / slept;
    const double ideal = 1 - 2.0 / lateness_->collectives;
    print_row(
        run_, fmt::format(R"("bench": "overlap", "mode": "{}", "of_layer": {})", mode_.name, share),
        fmt::format(R"("step_us": {:.1f}, "delay_us": {:.1f}, "collectives": {}, )"
                    R"("hidden": {:.3f}, "ideal": {:.3f}, "ratio": {:.3f})",
                    median(free), delay_us, lateness_->collectives, hidden, ideal, hidden / ideal));
  }

 private:
  // Microseconds of a step.
  double step(double delay_ms) {
    *lateness_ = {.delay_ms = delay_ms};
    const DeviceStream& compute = current_stream(run_.device);
    const double us = microseconds([&] {
      backward(sum(chain_(x_)));
      compute.synchronize();
    });
    for (nn::Parameter& parameter : parameters_) parameter.zero_grad();
    return us;
  }

  BenchRun run_;
  Mode mode_;
  int layers_;
  std::int64_t width_;
  std::shared_ptr<Lateness> lateness_;
  LinearChain chain_;
  Variable x_;
  std::vector<nn::Parameter> parameters_;
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  const BenchStart start = start_benchmark(argc, argv);
  if (!start.run) return start.exit_status;
  const RankScope scope(std::make_shared<RankContext>(0, kRanks, 1));
  for (const Mode& mode : kModes) {
    Overlap overlap(*start.run, mode);
    for (const double share : {0.25, 0.5, 0.75}) overlap.measure(share);
  }
  return 0;
}
