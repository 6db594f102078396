// A user-defined optimizer: options, state tensors, update. It sees only this rank's part of each
// parameter and gradient, so it does not deal with sharding. Its state is saved and resumed like
// that of Tessera's optimizers.
//
//     custom_optimizer_example --ranks 2 --launch threads

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

struct SignumOptions {
  double lr = 1e-3;
  double momentum = 0.9;
};

// Steps of equal size, in the direction on which most of the last gradients agree:
//     m = momentum m + (1 - momentum) gradient;  p = p - lr sign(m)
// (Bernstein et al., "signSGD: compressed optimisation for non-convex problems", 2018.)
class Signum final : public nn::optim::GroupOptimizer<SignumOptions> {
 public:
  Signum(const std::vector<nn::Parameter>& parameters, const SignumOptions& options) {
    add_groups({{.parameters = parameters, .options = options}});
  }
  std::string type_name() const override { return "Signum"; }

 private:
  void update(const std::vector<nn::Parameter>& parameters) override {
    for (const nn::Parameter& parameter : parameters) {
      const SignumOptions& options = options_for(parameter);
      const auto [average, is_new] = state_for_update(parameter, "momentum");
      if (is_new) zero_(average);
      mul_(average, options.momentum);
      add_(average, parameter.grad() * (1 - options.momentum));
      sub_(parameter.local().tensor(), sign(average) * options.lr);
    }
  }
  void check_options(const SignumOptions& options) const override {
    TESSERA_CHECK(options.lr >= 0, "Signum", "lr is {}; give at least 0", options.lr);
    TESSERA_CHECK(options.momentum >= 0 && options.momentum < 1, "Signum",
                  "momentum is {}; it lies in [0, 1)", options.momentum);
  }
  nn::optim::OptionList list_options(SignumOptions& options) const override {
    return {{"lr", &options.lr}, {"momentum", &options.momentum}};
  }
  std::vector<std::string> state_names(const SignumOptions& /*options*/) const override {
    return {"momentum"};
  }
};

// A model and its optimizer, sharded.
struct Run {
  explicit Run(distributed::World& world) : rank(world.rank()) {
    fsdp::fully_shard(model, {.mesh = world.mesh()});
    nn::initialize(model, {.seed = 1});
  }
  // Classifies points by their largest coordinate; every step and rank has other points.
  float train(int first, int last) {
    float loss = 0;
    for (int step = first; step <= last; ++step) {
      const Tensor points = Tensor::empty({64, 16});
      const std::string name = "batch " + std::to_string(step) + "." + std::to_string(rank);
      random::fill_normal(points, random::named_key(1, name), random::whole({64, 16}), 0, 1);
      const Variable error = cross_entropy(model(Variable(points)), argmax(points));
      backward(error);
      optimizer.step();
      optimizer.zero_grad();
      loss = error.item<float>();
      if (rank == 0 && step % 50 == 0) std::printf("step %d: loss %.4f\n", step, loss);
    }
    return loss;
  }

  int rank;
  models::MlpStack model{{.in = 16, .hidden = {64}, .classes = 16}};
  Signum optimizer{model.parameters(), {.lr = 2e-3}};
};

void train(distributed::World& world) {
  Run run(world);
  const float early = run.train(1, 50);
  const nn::StateDict model = nn::state_dict(run.model).clone();
  const nn::StateDict optimizer = run.optimizer.state_dict().clone();
  const float late = run.train(51, 200);
  TESSERA_CHECK(late < early / 2, "example", "the loss went from {} to {} only", early, late);

  Run again(world);  // continues from step 50 as the first one did
  nn::load_state_dict(again.model, model);
  again.optimizer.load_state_dict(optimizer);
  TESSERA_CHECK(again.train(51, 200) == late, "example", "the saved run went on differently");
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, train); }
