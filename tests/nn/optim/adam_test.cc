// Adam, AdamW and Lion: their formulas, element by element, with every option; errors.
#include "tessera/nn/optim/adam.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/nn/optim/lion.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::optim::Adam;
using nn::optim::AdamOptions;
using nn::optim::AdamW;
using nn::optim::AdamWOptions;
using nn::optim::Lion;
using nn::optim::LionOptions;
using namespace testing;

struct PlainAdam {
  AdamOptions o;
  bool decoupled;
  std::vector<double> p;
  std::vector<double> m = {}, v = {}, h = {};
  int t = 0;
  void step(const std::vector<double>& gradient) {
    ++t;
    m.resize(p.size());
    v.resize(p.size());
    h.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = o.maximize ? -gradient[i] : gradient[i];
      if (decoupled) {
        p[i] -= o.lr * o.weight_decay * p[i];
      } else {
        g += o.weight_decay * p[i];
      }
      m[i] = o.betas[0] * m[i] + (1 - o.betas[0]) * g;
      v[i] = o.betas[1] * v[i] + (1 - o.betas[1]) * g * g;
      h[i] = std::max(h[i], v[i]);
      const double root =
          std::sqrt((o.amsgrad ? h[i] : v[i]) / (1 - std::pow(o.betas[1], t))) + o.eps;
      p[i] -= o.lr / (1 - std::pow(o.betas[0], t)) * m[i] / root;
    }
  }
};

template <class Optimizer>
void check_adam(Optimizer&& optimizer, Parameter a, Parameter b, const AdamOptions& options,
                bool decoupled) {
  PlainAdam plain_a{options, decoupled, local_values(a)},
      plain_b{options, decoupled, local_values(b)};
  for (std::uint64_t step = 0; step < 6; ++step) {
    a.set_grad(random_gradient(a.shape(), step));
    plain_a.step(values(a.grad()));
    b.zero_grad();
    if (step != 2) {  // its own count of steps
      b.set_grad(random_gradient(b.shape(), step + 50));
      plain_b.step(values(b.grad()));
    }
    optimizer.step();
  }
  CHECK(distance(local_values(a), plain_a.p) < 1e-13);
  CHECK(distance(local_values(b), plain_b.p) < 1e-13);
  CHECK(distance(values(optimizer.state(a, "exp_avg_sq")), plain_a.v) < 1e-13);
  CHECK(optimizer.state(a, "max_exp_avg_sq").defined() == options.amsgrad);
  CHECK(optimizer.steps(a) == 6);
  CHECK(optimizer.steps(b) == 5);
}

TEST_CASE("Adam and AdamW follow their formulas for every combination of options") {
  for (double weight_decay : {0.0, 0.2}) {
    for (bool amsgrad : {false, true}) {
      for (bool maximize : {false, true}) {
        const AdamOptions o{.lr = 0.05,
                            .betas = {0.8, 0.7},
                            .eps = 1e-3,
                            .weight_decay = weight_decay,
                            .amsgrad = amsgrad,
                            .maximize = maximize};
        const AdamWOptions w{.lr = o.lr,
                             .betas = o.betas,
                             .eps = o.eps,
                             .weight_decay = o.weight_decay,
                             .amsgrad = o.amsgrad,
                             .maximize = o.maximize};
        const Parameter a = make({3, 5}, 1), b = make({7}, 2), c = make({3, 5}, 1),
                        d = make({7}, 2);
        check_adam(Adam({a, b}, o), a, b, o, false);
        check_adam(AdamW({c, d}, w), c, d, o, true);
      }
    }
  }
}

TEST_CASE("Lion follows its formula") {
  for (bool maximize : {false, true}) {
    Parameter p = make({3, 5}, 1);
    const LionOptions o{.lr = 0.05, .betas = {0.7, 0.9}, .weight_decay = 0.2, .maximize = maximize};
    Lion optimizer({p}, o);
    std::vector<double> plain = local_values(p), m(15);
    for (std::uint64_t step = 0; step < 6; ++step) {
      p.set_grad(random_gradient({3, 5}, step));
      const auto gradient = values(p.grad());
      optimizer.step();
      for (std::size_t i = 0; i < 15; ++i) {
        const double g = maximize ? -gradient[i] : gradient[i];
        const double c = 0.7 * m[i] + 0.3 * g;
        plain[i] -= 0.05 * ((c > 0 ? 1 : -1) + 0.2 * plain[i]);
        m[i] = 0.9 * m[i] + 0.1 * g;
      }
    }
    CHECK(distance(local_values(p), plain) < 1e-14);
    CHECK(distance(values(optimizer.state(p, "exp_avg")), m) < 1e-14);
  }
}

TEST_CASE("a 16-bit parameter keeps averages of f32, and is rounded once a step") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Parameter half = make({501}, 1, dtype), wide = make({501}, 1, DType::kF32);
    copy_(wide.local().tensor(), half.local().tensor());
    AdamW half_adam({half}, {.lr = 0.01}), wide_adam({wide}, {.lr = 0.01});
    half.set_grad(cast(random_gradient({501}, 7), dtype));
    wide.set_grad(cast(half.grad(), DType::kF32));
    half_adam.step();
    wide_adam.step();
    CHECK(values(cast(half.local().tensor(), DType::kF32)) ==
          values(cast(cast(wide.local().tensor(), dtype), DType::kF32)));
    CHECK(values(half_adam.state(half, "exp_avg_sq")) ==
          values(wide_adam.state(wide, "exp_avg_sq")));
  }
}

TEST_CASE("Adam and AdamW write a parameter's cast copy in the same launch") {
  Parameter p = make({7, 3}, 1, DType::kF32), without = make({7, 3}, 1, DType::kF32);
  const Tensor copy = zeros({7, 3}, {.dtype = DType::kBF16});
  p.set_cast_copy(copy);
  AdamW optimizer({p, without}, {.lr = 0.01});
  for (int step = 0; step < 2; ++step) {
    for (Parameter* each : {&p, &without})
      each->set_grad(cast(random_gradient({7, 3}, 5), DType::kF32));
    ExecutionTrace trace;
    {
      const TraceScope recording(trace);
      optimizer.step();
    }
    if (step > 0) CHECK(trace.all<KernelRecord>().size() == 1);
    CHECK(p.has_current_cast_copy());
    CHECK(values(cast(copy, DType::kF32)) ==
          values(cast(cast(p.local().tensor(), DType::kBF16), DType::kF32)));
    CHECK(values(p.local().tensor()) == values(without.local().tensor()));
  }
}

TEST_CASE("Adam's and Lion's step is one launch once there is state, over all groups") {
  Parameter a = make({3}, 1), b = make({0, 4}, 2), c = make({2, 2}, 3);
  Adam adam({{.parameters = {a, b}, .options = {}}, {.parameters = {c}, .options = {.lr = 1}}});
  Lion lion({a, b, c}, {});
  for (Parameter* p : {&a, &b, &c}) p->set_grad(ones(p->shape(), kDouble));
  adam.step();
  lion.step();
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    adam.step();
    lion.step();
  }
  CHECK(trace.all<KernelRecord>().size() == 2);
}

TEST_CASE("options of Adam, AdamW and Lion outside their ranges are refused") {
  const Parameter p = make({2}, 1);
  const auto adam = [&](const AdamOptions& o) {
    return thrown<InvalidArgument>([&] { Adam({p}, o); });
  };
  CHECK(adam({.lr = -1}) == "[nn.optim.Adam] lr is -1; give one that is at least 0");
  CHECK(adam({.betas = {0.9, 1}}) == "[nn.optim.Adam] betas are 0.9 and 1; they lie in [0, 1)");
  CHECK(adam({.eps = -1}) == "[nn.optim.Adam] eps is -1; it is at least 0");
  CHECK(adam({.weight_decay = -1}) == "[nn.optim.Adam] weight_decay is -1; it is at least 0");
  CHECK(thrown<InvalidArgument>([&] { AdamW({p}, {.lr = std::nan("")}); }) ==
        "[nn.optim.AdamW] lr is nan; give one that is at least 0");
  const auto lion = [&](const LionOptions& o) {
    return thrown<InvalidArgument>([&] { Lion({p}, o); });
  };
  CHECK(lion({.lr = -1}) == "[nn.optim.Lion] lr is -1; give one that is at least 0");
  CHECK(lion({.betas = {-0.5, 0}}) == "[nn.optim.Lion] betas are -0.5 and 0; they lie in [0, 1)");
  CHECK(lion({.weight_decay = -1}) == "[nn.optim.Lion] weight_decay is -1; it is at least 0");
  CHECK(thrown<InvalidArgument>([] { AdamW({}, {}); }).find("needs parameters") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera
