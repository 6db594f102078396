// Fine-tuning with frozen blocks: a GPT learns to continue sequences that count in steps of 1 to 4.
// Then a classifier with a new head on its hidden states learns to name the step. All blocks but
// the last are frozen: they have no gradients and no optimizer state, though they stay sharded.
//
//     fine_tuning_example --ranks 2

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

constexpr int64_t kLength = 12, kVocab = 32, kSteps = 4, kRows = 32;
const models::GptOptions kGpt{
    .layers = 3, .vocab_size = kVocab, .max_seq_len = kLength, .dim = 32, .heads = 4, .dropout = 0};

// Row by row: a start, and by how much the numbers grow. Random numbers differ between ranks.
struct Sequences {
  Tensor tokens;  // [kRows, kLength]
  Tensor steps;   // [kRows], from 0
};
Sequences sequences() {
  const Tensor start = randint(0, kVocab, {kRows, 1}), by = randint(0, kSteps, {kRows, 1});
  return {.tokens = remainder(start + (by + 1) * arange(kLength), kVocab), .steps = flatten(by)};
}

class Classifier final : public nn::Layer<Classifier> {
 public:
  Classifier() : gpt_(kGpt), head_({.in = kGpt.dim, .out = kSteps}) {
    register_module("gpt", gpt_);
    register_module("head", head_);
  }
  Variable forward(const Variable& tokens) { return head_(select(gpt_.hidden(tokens), 1, -1)); }
  models::Gpt& gpt() { return gpt_; }

 private:
  models::Gpt gpt_;
  nn::Linear head_;
};

void shard(models::Gpt& gpt, const distributed::World& world) {
  for (models::PreNormBlock& block : gpt.blocks()) fsdp::fully_shard(block, {.mesh = world.mesh()});
  fsdp::fully_shard(gpt, {.mesh = world.mesh()});
}

template <class Loss>
double train(nn::Module& model, int steps, const char* what, const distributed::World& world,
             const Loss& loss_of) {
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  double last = 0;
  for (int step = 1; step <= steps; ++step) {
    const Variable loss = loss_of(sequences());
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item<double>();
    if (world.rank() == 0 && step % 50 == 0) std::printf("%s %d: loss %.3f\n", what, step, last);
  }
  return last;
}

void fine_tune(distributed::World& world) {
  models::Gpt gpt(kGpt);
  shard(gpt, world);
  nn::initialize(gpt, {.seed = 1, .device = world.device()});
  train(gpt, 150, "next number", world, [&](const Sequences& s) {
    const Variable logits = gpt(Variable(s.tokens.narrow(1, 0, kLength - 1)));
    return cross_entropy(logits, contiguous(s.tokens.narrow(1, 1, kLength - 1)));
  });
  const nn::StateDict learned = fsdp::full_state_dict(gpt);  // on rank 0; empty on the others

  Classifier classifier;
  nn::freeze(classifier, "gpt.**");
  nn::unfreeze(classifier, "gpt.blocks.2.**");  // the last block learns
  shard(classifier.gpt(), world);
  fsdp::fully_shard(classifier, {.mesh = world.mesh()});
  nn::initialize(classifier, {.seed = 2, .device = world.device()});
  fsdp::load_full_state_dict(classifier.gpt(), learned);  // rank 0 sends it to all
  const double loss = train(classifier, 150, "step", world, [&](const Sequences& s) {
    return cross_entropy(classifier(Variable(s.tokens)), s.steps);
  });
  TESSERA_CHECK(loss < 0.3, "example", "the classifier ended with a loss of {}", loss);
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, fine_tune); }
