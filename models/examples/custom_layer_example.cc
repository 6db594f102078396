// A user-defined layer. It declares its parameters, their initial values and its forward. Its
// gradient, sharding, saving and summary work as for Tessera's own layers.
//
//     custom_layer_example --ranks 2 --launch threads

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

struct RadialBasisOptions {
  int64_t in = 0;   // required
  int64_t out = 0;  // required
  double width = 1;
};

// y[j] = exp(-|x - center j|^2 / width^2): large if x is near the center.
class RadialBasis final : public nn::Layer<RadialBasis> {
 public:
  using Options = RadialBasisOptions;
  explicit RadialBasis(const RadialBasisOptions& options)
      : width_(options.width),
        centers_({.shape = {options.out, options.in}, .init = nn::init::uniform(-1, 1)}) {
    register_parameter("centers", centers_);
  }

  // x [batch, in] -> [batch, out]
  Variable forward(const Variable& x) {
    const Variable offsets = unsqueeze(x, 1) - centers_.value();  // [batch, out, in]
    return exp(sum(square(offsets), {2}) * (-1 / (width_ * width_)));
  }

 private:
  double width_;
  nn::Parameter centers_;
};

class Net final : public nn::Layer<Net> {
 public:
  Net() : basis_({.in = 2, .out = 32, .width = 0.4}), head_({.in = 32, .out = 2}) {
    register_module("basis", basis_);
    register_module("head", head_);
  }
  Variable forward(const Variable& x) { return head_(basis_(x)); }

 private:
  RadialBasis basis_;
  nn::Linear head_;
};

// Points of a square. Class 1 is a ring in it, which no straight line separates.
struct Points {
  Variable at;
  Tensor classes;
};
Points make_points(const std::string& name, int rank) {
  const Tensor at = Tensor::empty({300, 2});
  random::fill_uniform(at, random::named_key(1, name + std::to_string(rank)),
                       random::whole(at.shape()), -1, 1);
  const Tensor radius = sqrt(sum(square(at), {1}));
  return {Variable(at), cast(logical_and(gt(radius, 0.4), lt(radius, 0.8)), DType::kI64)};
}

double accuracy(Net& net, const Points& points) {
  const NoGradGuard no_grad;
  return mean(cast(eq(argmax(net(points.at).tensor()), points.classes), DType::kF32)).item<float>();
}

void train(distributed::World& world) {
  Net net;
  fsdp::fully_shard(net, {.mesh = world.mesh()});
  nn::initialize(net, {.seed = 1});
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 0.03});
  for (int step = 1; step <= 400; ++step) {
    const auto [at, classes] = make_points("step " + std::to_string(step), world.rank());
    const Variable loss = cross_entropy(net(at), classes);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (world.rank() == 0 && step % 100 == 0)
      std::printf("step %d: loss %.4f\n", step, loss.item<float>());
  }
  const double right = accuracy(net, make_points("test", 0));
  if (world.rank() == 0) std::printf("%.1f %% of new points are right\n", 100 * right);
  TESSERA_CHECK(right > 0.93, "example", "only {:.3f} of the points are right", right);
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, train); }
