// LoRA: a trained model learns a new task through small matrices beside its frozen weights (Hu et
// al., "LoRA: low-rank adaptation of large language models", 2021). Only these have gradients and
// optimizer state, and are saved. Merged into the weights they cost nothing.
//
//     lora_example --ranks 2 --launch threads

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

// y = base(x) + up(down(x)), where up starts as zero.
class LoraLinear final : public nn::Layer<LoraLinear> {
 public:
  LoraLinear(int64_t in, int64_t out, int64_t rank)
      : base_({.in = in, .out = out}),
        down_({.in = in, .out = rank, .bias = false}),
        up_({.in = rank, .out = out, .bias = false}) {
    up_.weight().set_init(nn::init::zeros());
    register_module("base", base_);
    register_module("lora_down", down_);
    register_module("lora_up", up_);
  }
  Variable forward(const Variable& x) { return base_(x) + up_(down_(x)); }

  // Adds the product to the base's weight. Needs full parameters: see FullParameters.
  void merge() {
    const Tensor up = up_.weight().value().tensor();
    add_(base_.weight().value().tensor(), matmul(up, down_.weight().value().tensor()));
    zero_(up);
  }

 private:
  nn::Linear base_, down_, up_;
};

// Classifies points by their largest coordinate. In the new task two coordinates have their sign
// flipped.
float train(nn::Sequential& net, const std::string& task, int rank) {
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
  float last = 0;
  for (int step = 1; step <= 151; ++step) {
    const Tensor points = Tensor::empty({64, 16});
    const random::Key key = random::named_key(rank, task + std::to_string(step));
    random::fill_normal(points, key, random::whole(points.shape()), 0, 1);
    const Tensor classes = argmax(points);
    if (task == "new") mul_(points.slice(1, 0, 2), -1);
    const Variable loss = cross_entropy(net(Variable(points)), classes);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item<float>();
    if (rank == 0 && step % 50 == 1) std::printf("%s task %3d: %.4f\n", task.c_str(), step, last);
  }
  return last;
}

void fine_tune(distributed::World& world) {
  nn::Sequential net, other;
  for (nn::Sequential* model : {&net, &other}) {
    model->add<LoraLinear>(16, 64, /*rank=*/2);
    model->add<nn::GELU>();
    model->add<LoraLinear>(64, 16, /*rank=*/2);
    fsdp::fully_shard(*model, {.mesh = world.mesh()});
  }
  nn::initialize(net, {.seed = 1});
  nn::freeze(net, "*.lora_*.*");
  train(net, "old", world.rank());
  nn::StateDict state = fsdp::full_state_dict(net);  // on rank 0; empty on the others

  nn::unfreeze(net, "*.lora_*.*");
  nn::freeze(net, "*.base.*");
  const float loss = train(net, "new", world.rank());

  // Only the matrices are saved; they are combined with the old base in another model.
  nn::StateDict adapters;
  for (const auto& [name, value] : fsdp::full_state_dict(net))
    if (nn::matches(name, "*.lora_*.*")) adapters.set(name, value);
  if (world.rank() == 0) {
    nn::save_state("lora.safetensors", adapters);  // in the current folder
    for (const auto& [name, value] : nn::load_state("lora.safetensors")) state.set(name, value);
  }
  fsdp::load_full_state_dict(other, state);  // rank 0 sends it to all

  const NoGradGuard no_grad;
  const Variable x(sin(reshape(arange(160), {10, 16})));
  const Tensor tuned = net(x).tensor();
  const float loaded = max(abs(tuned - other(x).tensor())).item<float>();
  fsdp::FullParameters whole(other);
  for (const int layer : {0, 2}) other.at<LoraLinear>(layer).merge();
  whole.close();  // each rank keeps its part of the change
  const float merged = max(abs(tuned - other(x).tensor())).item<float>();
  if (world.rank() == 0) std::printf("logits differ by %g loaded, %g merged\n", loaded, merged);
  TESSERA_CHECK(loss < 0.7 && loaded == 0 && merged < 1e-4, "example", "the matrices fail");
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, fine_tune); }
