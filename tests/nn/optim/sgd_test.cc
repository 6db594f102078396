// SGD: its formula, and what every optimizer shares: state, sharding, gradients of any layout.
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::optim::SGD;
using nn::optim::SgdOptions;
using namespace testing;

// The formula of sgd.h, element by element.
struct PlainSgd {
  SgdOptions options;
  std::vector<double> p;
  std::vector<double> m = {};
  void step(const std::vector<double>& gradient, double lr) {
    const bool first = m.empty();
    m.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g =
          (options.maximize ? -gradient[i] : gradient[i]) + options.weight_decay * p[i];
      m[i] = first ? g : options.momentum * m[i] + (1 - options.dampening) * g;
      double update = g;
      if (options.momentum != 0) update = options.nesterov ? g + options.momentum * m[i] : m[i];
      p[i] -= lr * update;
    }
  }
};

TEST_CASE("SGD follows its formula for every combination of options") {
  for (double momentum : {0.0, 0.9}) {
    for (double dampening : {0.0, 0.3}) {
      for (double weight_decay : {0.0, 0.1}) {
        for (bool nesterov : {false, true}) {
          if (nesterov && (momentum == 0 || dampening != 0)) continue;
          Parameter a = make({3, 5}, 1), b = make({7}, 2);
          const SgdOptions options{.lr = 0.1,
                                   .momentum = momentum,
                                   .dampening = dampening,
                                   .weight_decay = weight_decay,
                                   .nesterov = nesterov,
                                   .maximize = nesterov};
          PlainSgd plain_a{options, values(a.local().tensor())},
              plain_b{options, values(b.local().tensor())};
          SGD optimizer({a, b}, options);
          for (int step = 0; step < 4; ++step) {
            const double lr = 0.1 / (step + 1);
            optimizer.set_lr(lr);
            a.set_grad(random_gradient({3, 5}, 2 * step));
            b.set_grad(random_gradient({7}, 2 * step + 1));
            plain_a.step(values(a.grad()), lr);
            plain_b.step(values(b.grad()), lr);
            optimizer.step();
          }
          const std::vector<double> got_a = values(a.local().tensor()),
                                    got_b = values(b.local().tensor());
          for (std::size_t i = 0; i < 15; ++i) CHECK(std::abs(got_a[i] - plain_a.p[i]) < 1e-14);
          for (std::size_t i = 0; i < 7; ++i) CHECK(std::abs(got_b[i] - plain_b.p[i]) < 1e-14);
        }
      }
    }
  }
}

TEST_CASE(
    "state appears at the first step, for parameters that have a gradient, as optimizer memory") {
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kOptimizer];
  Parameter a = make({3, 5}, 1), b = make({7}, 2), frozen = make({2}, 3);
  SGD optimizer({a, b, a, frozen}, {.lr = 0.1, .momentum = 0.9});
  CHECK(optimizer.parameters().size() == 3);
  CHECK_FALSE(optimizer.state(a, "momentum").defined());
  frozen.set_grad(ones({2}, kDouble));
  frozen.set_requires_grad(false);
  const auto untouched = values(b.local().tensor()), still = values(frozen.local().tensor());
  a.set_grad(ones({3, 5}, kDouble));
  CHECK(memory.current()[MemoryCategory::kOptimizer] == before);
  const auto version = a.local().tensor().version();
  optimizer.step();
  CHECK(a.local().tensor().version() > version);
  CHECK(memory.current()[MemoryCategory::kOptimizer] ==
        before + counted_bytes(default_device().type, 3 * 5 * 8));
  CHECK(values(optimizer.state(a, "momentum")) == std::vector<double>(15, 1));
  CHECK(optimizer.state(a, "momentum").storage().name() == "p1.momentum");
  CHECK_FALSE(optimizer.state(a, "other").defined());
  CHECK_FALSE(optimizer.state(b, "momentum").defined());
  CHECK(values(b.local().tensor()) == untouched);
  CHECK(values(frozen.local().tensor()) == still);

  SGD plain({a}, {.lr = 0.1});
  plain.step();
  CHECK(memory.current()[MemoryCategory::kOptimizer] ==
        before + counted_bytes(default_device().type, 3 * 5 * 8));
  a.zero_grad();
  plain.step();  // nothing to do
}

TEST_CASE("a step is one launch, however many parameters") {
  std::vector<Parameter> parameters;
  for (std::uint64_t i = 0; i < 5; ++i) {
    parameters.push_back(make({static_cast<std::int64_t>(i), 3}, i));  // the first is empty
    parameters.back().set_grad(random_gradient(parameters.back().shape(), i));
  }
  SGD optimizer(parameters, {.lr = 0.1, .momentum = 0.5});
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    optimizer.step();
    optimizer.step();
  }
  CHECK(trace.all<KernelRecord>().size() == 2);
}

TEST_CASE("a gradient that is a strided view is stepped with too") {
  Parameter p = make({3, 2}, 1);
  const auto start = values(p.local().tensor());
  p.set_grad(Tensor::scalar(2, kDouble).expand({3, 2}));
  SGD({p}, {.lr = 0.5}).step();
  const auto end = values(p.local().tensor());
  for (std::size_t i = 0; i < 6; ++i) CHECK(end[i] == start[i] - 1);
}

TEST_CASE("gradients kept in 16 bits are stepped with, in one launch beside others") {
  Parameter narrow = make({3, 2}, 1, DType::kF32), wide = make({4}, 2, DType::kF32);
  const auto start = values(narrow.local().tensor());
  narrow.set_grad(full({3, 2}, 0.5, {.dtype = DType::kBF16}));
  wide.set_grad(full({4}, 0.5));
  SGD optimizer({narrow, wide}, {.lr = 1, .momentum = 0.5});
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    optimizer.step();
  }
  CHECK(trace.all<KernelRecord>().size() == 1);
  const auto end = values(narrow.local().tensor());
  for (std::size_t i = 0; i < 6; ++i) CHECK(std::abs(end[i] - (start[i] - 0.5)) < 1e-6);
  CHECK(optimizer.state(narrow, "momentum").dtype() == DType::kF32);
}

TEST_CASE(
    "an optimizer may be built before initialize and before sharding, and works on the shard") {
  MemoryCounters& memory = current_rank_context()->memory();
  nn::Linear whole({.in = 3, .out = 5, .bias = false, .dtype = DType::kF64});
  nn::Linear part({.in = 3, .out = 5, .bias = false, .dtype = DType::kF64});
  SGD whole_sgd(whole.parameters(), {.lr = 0.1, .momentum = 0.9});
  SGD part_sgd(part.parameters(), {.lr = 0.1, .momentum = 0.9});
  part.weight().shard(row_sharding({5, 3}, 4, 1, 2), std::make_shared<FakeOwner>("g"));
  nn::initialize(whole);
  nn::initialize(part);
  const std::int64_t before = memory.current()[MemoryCategory::kOptimizer];
  for (int step = 0; step < 3; ++step) {
    const Tensor gradient = random_gradient({5, 3}, step);
    whole.weight().set_grad(gradient);
    part.weight().set_grad(gradient.slice(0, 4, 5));
    whole_sgd.step();
    part_sgd.step();
  }
  CHECK(values(part.weight().local().tensor()) ==
        values(whole.weight().local().tensor().slice(0, 4, 5)));
  CHECK(part_sgd.state(part.weight(), "momentum").shape() == Shape{1, 3});
  CHECK(memory.current()[MemoryCategory::kOptimizer] ==
        before + counted_bytes(default_device().type, 5 * 3 * 8) +
            counted_bytes(default_device().type, 3 * 8));
}

TEST_CASE("sharding after a step with state is refused at the next one") {
  Parameter p = make({4}, 1);
  SGD optimizer({p}, {.lr = 0.1, .momentum = 0.9});
  p.set_grad(ones({4}, kDouble));
  optimizer.step();
  p.shard(row_sharding({4}, 0, 2, 2), std::make_shared<FakeOwner>("g"));
  CHECK(thrown<StateError>([&] { optimizer.step(); }) ==
        "[nn.optim] momentum of \"p1\" has shape [4], local() has [2]: it was sharded after a step "
        "of this optimizer; "
        "build the optimizer again");
}

TEST_CASE("zero_grad drops all gradients, or none and names the groups") {
  Parameter a = make({4}, 1), b = make({4}, 2), c = make({4}, 3), d = make({4}, 4);
  auto first = std::make_shared<FakeOwner>("first"), second = std::make_shared<FakeOwner>("second");
  a.shard(row_sharding({4}, 0, 2, 2), first);
  b.shard(row_sharding({4}, 0, 2, 2), first);
  c.shard(row_sharding({4}, 0, 2, 2), second);
  SGD optimizer({d, a, b, c}, {.lr = 0.1});
  d.set_grad(ones({4}, kDouble));
  first->pending = second->pending = true;
  CHECK(thrown<StateError>([&] { optimizer.zero_grad(); }) ==
        "[nn.optim] zero_grad() while gradients of groups first, second wait to be reduced: run a "
        "backward that reduces, "
        "or discard_pending_gradients()");
  CHECK(d.grad().defined());
  first->pending = second->pending = false;
  optimizer.zero_grad();
  CHECK_FALSE(d.grad().defined());
}

TEST_CASE("options outside their ranges are refused") {
  const Parameter p = make({2}, 1);
  const auto refused = [&](const SgdOptions& options) {
    return thrown<InvalidArgument>([&] { SGD({p}, options); });
  };
  CHECK(refused({}) == "[nn.optim.SGD] lr is -1; give one that is at least 0");
  CHECK(refused({.lr = std::nan("")}).find("lr is nan") != std::string::npos);
  CHECK(refused({.lr = 1, .momentum = -0.5}) ==
        "[nn.optim.SGD] momentum is -0.5; it is at least 0");
  CHECK(refused({.lr = 1, .weight_decay = -1}) ==
        "[nn.optim.SGD] weight_decay is -1; it is at least 0");
  CHECK(refused({.lr = 1, .nesterov = true}) ==
        "[nn.optim.SGD] nesterov needs momentum > 0 and dampening 0, got 0 and 0");
  CHECK(refused({.lr = 1, .momentum = 0.5, .dampening = 0.1, .nesterov = true})
            .find("got 0.5 and 0.1") != std::string::npos);
  CHECK(thrown<InvalidArgument>([] { SGD({}, {.lr = 1}); }) ==
        "[nn.optim] an optimizer needs parameters: the model has none, or the list is empty");
  SGD optimizer({p}, {.lr = 1});
  CHECK(thrown<InvalidArgument>([&] { optimizer.set_lr(-1); }) ==
        "[nn.optim.SGD] lr is -1; give one that is at least 0");
  CHECK(optimizer.lr() == 1);
}

}  // namespace
}  // namespace tessera
