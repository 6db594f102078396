// A small mixture of experts that learns to count. Each rank keeps some of the experts, and tokens
// are sent to them. expert_parallel_example --ranks 4 --launch threads

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

// 32 sequences of 13 tokens that count up from a random start, by a stride that depends on the
// start.
Tensor make_batch(int step) {
  const Tensor starts = Tensor::empty({32}, {.dtype = DType::kI64});
  random::fill_integers(starts, random::named_key(1, "batch " + std::to_string(step)),
                        random::whole(starts.shape()), 0, 16);
  std::vector<int64_t> tokens;
  for (const int64_t start : starts.to_vector<int64_t>()) {
    for (int64_t i = 0; i < 13; ++i) tokens.push_back((start + (2 * start + 1) * i) % 16);
  }
  return Tensor::from_vector(tokens, {32, 13});
}

void train(distributed::World& world) {
  models::MixtureOfExperts model({.layers = 2,
                                  .vocab_size = 16,
                                  .max_seq_len = 12,
                                  .dim = 32,
                                  .ffn_dim = 48,
                                  .experts = 6,
                                  .capacity_factor = 2,
                                  .dtype = DType::kF64});
  // Experts are divided over all ranks, without replicas; everything else is sharded over all
  // ranks.
  const distributed::DeviceMesh experts({"copy", "expert"}, {1, world.size()}, world.group(),
                                        world.device());
  models::parallelize(
      model,
      {.mesh = world.mesh(), .precision = models::precision_named("f64"), .expert_mesh = experts});
  nn::initialize(model, {.seed = 1});
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  for (int step = 1; step <= 60; ++step) {
    const Tensor tokens = distribute(make_batch(step), world.mesh(), {distributed::Shard{0}});
    const models::LanguageModelResult result = model(Variable(contiguous(tokens.slice(1, 0, 12))));
    const Variable loss = cross_entropy(result.logits, contiguous(tokens.slice(1, 1, 13)));
    backward(loss + result.auxiliary_loss);
    nn::clip_grad_norm(model.parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    all_reduce(*world.group(), {{loss.tensor()}}, distributed::ReduceOp::kAverage);
    if (world.rank() == 0 && step % 10 == 0)
      std::printf("step %d: loss %.4f, balance %.4f\n", step, loss.item<double>(),
                  result.auxiliary_loss.item<double>());
  }
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, train); }
