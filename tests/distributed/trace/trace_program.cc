// What check_trace_test.py starts: `trace_program FILE inline|queued threads|processes RANKS
// [BLOCKS DIM]` trains a sharded Transformer for a few steps and writes the trace of steps 2 and 3.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/trace/trace_session.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/parameter.h"

namespace {

using namespace tessera;

Tensor tokens(std::int64_t rows, std::int64_t length, std::int64_t vocab) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows * length; ++i) ids.push_back((i * i + 5 * i) % vocab);
  return Tensor::from_vector(ids, {rows, length});
}

void train(distributed::World& world, const std::string& path, int blocks, std::int64_t dim) {
  models::Transformer model({.layers = blocks, .vocab_size = 97, .max_seq_len = 32, .dim = dim});
  for (models::TransformerBlock& block : model.blocks())
    fsdp::fully_shard(block, {.mesh = world.mesh()});
  fsdp::fully_shard(model, {.mesh = world.mesh()});
  nn::initialize(model, {.seed = 1});
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  const Tensor batch = tokens(8, 32, 97);
  distributed::TraceSession session(world, {.path = path, .first_step = 2, .steps = 2});
  for (int step = 0; step < 5; ++step) {
    session.begin_step(step);
    const Variable loss = mean(square(model(batch)));
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  session.end();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: trace_program FILE COMPUTE MODE RANKS [BLOCKS DIM]\n");
    return 2;
  }
  const std::string path = argv[1], compute = argv[2], mode = argv[3];
  const int blocks = argc > 6 ? std::atoi(argv[5]) : 3;
  const std::int64_t dim = argc > 6 ? std::atoi(argv[6]) : 32;
  using distributed::LaunchMode;
  const distributed::LaunchResult result = distributed::launch(
      argc, argv,
      {.ranks = std::atoi(argv[4]),
       .mode = mode == "threads" ? LaunchMode::kThreads : LaunchMode::kProcesses,
       .cpu_compute = compute == "queued" ? StreamKind::kQueued : StreamKind::kInline},
      [&](distributed::World& world) { train(world, path, blocks, dim); });
  if (result.exit_code != 0) fmt::print(stderr, "{}\n", result.failure);
  return result.exit_code;
}
