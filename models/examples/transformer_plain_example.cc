// A small Transformer that learns to count.
// On one device, saved if a path is given: transformer_plain_example /tmp/counting.safetensors

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

void train(const char* path) {
  models::Transformer model({.vocab_size = 16, .dim = 32, .dropout = 0});
  nn::initialize(model, {.seed = 1});
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  for (int step = 1; step <= 60; ++step) {
    const Tensor tokens = make_batch(step);
    const Tensor known = contiguous(tokens.slice(1, 0, 12)), next = tokens.slice(1, 1, 13);
    const Variable loss = cross_entropy(model(known), contiguous(next));
    backward(loss);
    nn::clip_grad_norm(model.parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 10 == 0) std::printf("step %d: loss %.4f\n", step, loss.item<float>());
  }
  if (path != nullptr) nn::save_state(path, nn::state_dict(model));
}

int main(int argc, char** argv) { train(argc > 1 ? argv[1] : nullptr); }
