// Two ranks that train one model together, compared with two that train one model each:
//
//     tools/bazel run //tools/bench:bench_ranks
//
// Two processes (gloo), one thread each. In turns they train the bundled transformer with 25.6
// million elements sharded over both (fully_shard, a group for each block), and an unsharded one
// each, at the same time and without communication. Both times are those of a step with AdamW on
// the slower rank. The ratio is own over shared time of two neighbouring steps; its median over
// pairs is printed: 1.00 would mean that sharding costs nothing. Each rank has ROWS times 128
// tokens; other values of ROWS are arguments (`bench_ranks 2 16`).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/tensor/random.h"
#include "tessera/tools/bench/bench_support.h"

namespace tessera {
namespace {

using distributed::World;

constexpr int kRanks = 2;
constexpr int kPairs = 9;
constexpr int kWarmUpPairs = 2;
constexpr std::int64_t kLength = 128;

Tensor random_tokens(std::int64_t rows, int rank) {
  const Tensor tokens = Tensor::empty({rows, kLength}, {.dtype = DType::kI64});
  random::fill_integers(tokens, random::named_key(static_cast<std::uint64_t>(rank), "tokens"),
                        random::whole(tokens.shape()), 0, kBenchTransformer.vocab_size);
  return tokens;
}

class Training {
 public:
  // Sharded over the world, or not.
  Training(World& world, bool sharded) : group_(*world.group()), model_(kBenchTransformer) {
    if (sharded) shard_transformer(model_, {.mesh = world.mesh()});
    nn::initialize(model_, {.seed = 1, .device = world.device()});
    optimizer_.emplace(model_.parameters(), nn::optim::AdamWOptions{.lr = 1e-4});
  }
  // Milliseconds of a step on the slower rank, equal on both.
  double step(const Tensor& tokens) {
    distributed::barrier(group_);
    const double took = microseconds([&] {
      backward(cross_entropy(model_(tokens), tokens));
      optimizer_->step();
      optimizer_->zero_grad();
      current_stream(kCpu).synchronize();
    });
    const Tensor time = Tensor::from_vector<double>({took * 1e-3}, {1});
    distributed::all_reduce(group_, std::vector{time}, distributed::ReduceOp::kMax);
    return time.item<double>();
  }

 private:
  distributed::ProcessGroup& group_;
  models::Transformer model_;
  std::optional<nn::optim::AdamW> optimizer_;
};

void measure(World& world, Training& together, Training& alone, std::int64_t rows) {
  const Tensor tokens = random_tokens(rows, world.rank());
  std::vector<double> shared, own, ratios;
  for (int pair = -kWarmUpPairs; pair < kPairs; ++pair) {
    const double shared_ms = together.step(tokens);
    const double own_ms = alone.step(tokens);
    if (pair < 0) continue;
    shared.push_back(shared_ms);
    own.push_back(own_ms);
    ratios.push_back(own_ms / shared_ms);
  }
  if (world.rank() != 0) return;
  fmt::print("  {} x {} tokens a rank: {:8.1f} ms together, {:8.1f} ms alone, ratio {:.3f}\n", rows,
             kLength, median(shared), median(own), median(ratios));
  std::fflush(stdout);
}

void measure_all(World& world, const std::vector<std::int64_t>& all_rows) {
  Training together(world, /*sharded=*/true);
  Training alone(world, /*sharded=*/false);
  for (const std::int64_t rows : all_rows) measure(world, together, alone, rows);
}

int run(int argc, char** argv) {
  std::vector<std::int64_t> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::max(1, std::atoi(argv[i])));
  if (rows.empty()) rows = {1, 4, 8};
  if (!distributed::is_rank_process())
    fmt::print("---- {} processes (gloo), {} pairs of steps\n", kRanks, kPairs);
  std::fflush(stdout);
  const auto result = distributed::launch(
      argc, argv, {.ranks = kRanks, .mode = distributed::LaunchMode::kProcesses},
      [&rows](World& world) { measure_all(world, rows); });
  if (result.exit_code != 0) fmt::print(stderr, "{}\n", result.failure);
  return result.exit_code;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
