// The cross entropy of logits whose classes lie in parts on two ranks (nn/mesh/loss_parallel.h), compared with that of
// gathered logits:
//
//     tools/bazel run //tools/bench:bench_loss_parallel
//
// Two ranks, threads of this process, have half of the columns of the logits each, 1,024 tokens of a vocabulary of 50,257.
// In turns they compute loss and gradient from the parts, and from all logits after a gather. Times are the slower rank's;
// the ratio is that of gathered to parallel, its median over pairs. Memory is the peak beside the logits, of one rank.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/nn/mesh/loss_parallel.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {
namespace {

using distributed::World;

constexpr int kRanks = 2;
constexpr int kPairs = 9;
constexpr std::int64_t kRows = 1024, kClasses = 50257;

struct Cost {
  double forward_ms = 0;
  double backward_ms = 0;
  double peak_mb = 0;
};

class Losses {
 public:
  Losses(World& world, DType dtype)
      : group_(*world.group()), mesh_(distributed::make_mesh(world.mesh())) {
    const std::int64_t columns = nn::part_of(kClasses, *mesh_, axis()).count;
    const Tensor logits = Tensor::empty({kRows, columns}, {.dtype = DType::kF32});
    random::fill_uniform(logits, random::named_key(1, "logits"), random::whole(logits.shape()), -3,
                         3);
    source_ = Variable(cast(logits, dtype), true);
    targets_ = Tensor::empty({kRows}, {.dtype = DType::kI64});
    random::fill_integers(targets_, random::named_key(2, "targets"), random::whole({kRows}), 0,
                          kClasses);
  }

  Cost run(bool gathers) {
    // As after an output layer: nothing else holds the logits.
    Variable logits = recorded_copy();
    distributed::barrier(group_);
    MemoryCounters& memory = current_rank_context()->memory();
    memory.reset_peak();
    const std::int64_t before = memory.current()[MemoryCategory::kActivation];
    Variable loss;
    const double forward = microseconds([&] {
      loss = gathers ? cross_entropy(whole(logits), targets_)
                     : nn::parallel_cross_entropy(logits, targets_, mesh_, axis(),
                                                  {.classes = kClasses});
      current_stream(kCpu).synchronize();
    });
    logits = Variable();
    const double backward_us = microseconds([&] {
      backward(loss);
      current_stream(kCpu).synchronize();
    });
    const std::int64_t peak = memory.peak()[MemoryCategory::kActivation] - before;
    const Tensor all = Tensor::from_vector<double>(
        {forward * 1e-3, backward_us * 1e-3, static_cast<double>(peak) * 1e-6}, {3});
    distributed::all_reduce(group_, std::vector{all}, distributed::ReduceOp::kMax);
    const std::vector<double> numbers = all.to_vector<double>();
    return {numbers[0], numbers[1], numbers[2]};
  }

 private:
  const std::string& axis() const { return mesh_->axes().front(); }
  Variable whole(const Variable& part) const {
    return nn::gather_from_ranks(part, mesh_, axis(), {.dim = -1, .extent = kClasses});
  }
  // Backward adds the logits' gradient to that of the source, whichever loss it is.
  Variable recorded_copy() const {
    return add(source_, Variable(zeros({1}, source_.tensor().options())));
  }

  distributed::ProcessGroup& group_;
  std::shared_ptr<const nn::Mesh> mesh_;
  Variable source_;
  Tensor targets_;
};

void measure(World& world, DType dtype) {
  Losses losses(world, dtype);
  losses.run(true);
  losses.run(false);
  std::vector<double> gathered[2], parallel[2], ratios[2];
  Cost of_gathered, of_parallel;
  for (int pair = 0; pair < kPairs; ++pair) {
    of_gathered = losses.run(true);
    of_parallel = losses.run(false);
    const double now[2][2] = {{of_gathered.forward_ms, of_parallel.forward_ms},
                              {of_gathered.backward_ms, of_parallel.backward_ms}};
    for (int pass = 0; pass < 2; ++pass) {
      gathered[pass].push_back(now[pass][0]);
      parallel[pass].push_back(now[pass][1]);
      ratios[pass].push_back(now[pass][0] / now[pass][1]);
    }
  }
  if (world.rank() != 0) return;
  for (int pass = 0; pass < 2; ++pass)
    fmt::print("  {:4} {:8}: {:6.1f} ms gathered, {:6.1f} ms in parts, ratio {:.2f}\n",
               dtype_name(dtype), pass == 0 ? "forward" : "backward", median(gathered[pass]),
               median(parallel[pass]), median(ratios[pass]));
  fmt::print("  {:4} memory beside the logits: {:.1f} MB gathered, {:.1f} MB in parts\n",
             dtype_name(dtype), of_gathered.peak_mb, of_parallel.peak_mb);
  std::fflush(stdout);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  fmt::print("---- {} ranks, {} tokens, {} classes, {} pairs\n", kRanks, kRows, kClasses, kPairs);
  const auto result = distributed::launch(
      argc, argv, {.ranks = kRanks, .mode = distributed::LaunchMode::kThreads}, [](World& world) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) measure(world, dtype);
      });
  if (result.exit_code != 0) fmt::print(stderr, "{}\n", result.failure);
  return result.exit_code;
}
