// Backward hooks of modules.

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/double_options.h"

namespace tessera {
namespace {

using nn::Module;
using testing::kDouble;
using testing::thrown;

Variable leaf(double value) { return Variable(Tensor::scalar(value, kDouble), true); }
Variable constant(double value) { return Variable(Tensor::scalar(value, kDouble)); }

// (a * b, a + b)
struct TwoOfTwo final : nn::Layer<TwoOfTwo> {
  std::tuple<Variable, Variable> forward(const Variable& a, const Variable& b) {
    return {mul(a, b), add(a, b)};
  }
};

std::string text(const Gradients& gradients) {
  std::string out;
  for (const Variable& g : gradients) {
    out += g.defined() ? fmt::format("{} ", g.item<double>()) : "- ";
  }
  return out;
}

struct Log {
  std::string seen;
  nn::BackwardHook hook() {
    return [this](Module& module, Gradients& arguments, const Gradients& results) {
      seen += module.type_name() + ": " + text(results) + "-> " + text(arguments) + "; ";
    };
  }
};

TEST_CASE("a backward hook sees the gradients of all results and all arguments, once a call") {
  TwoOfTwo layer;
  Log log;
  HookHandle handle = layer.register_full_backward_hook(log.hook());
  const Variable a = leaf(2), b = leaf(5);
  const auto [product, total] = layer(a, b);
  backward(add(mul(product, 3.0), mul(total, 10.0)));
  CHECK(log.seen == "TwoOfTwo: 3 10 -> 25 16 ; ");
  CHECK(a.grad().item<double>() == 25);
  CHECK(b.grad().item<double>() == 16);
  log.seen.clear();
  handle.remove();
  const auto again = layer(a, b);
  backward(std::get<0>(again));
  CHECK(log.seen.empty());
}

TEST_CASE("gradients that nobody needs or sent are undefined") {
  TwoOfTwo layer;
  Log log;
  layer.register_full_backward_hook(log.hook());
  const Variable a = leaf(2);
  backward(std::get<0>(layer(a, constant(5))));
  CHECK(log.seen == "TwoOfTwo: 1 - -> 5 - ; ");
  CHECK(a.grad().item<double>() == 5);
}

TEST_CASE("hooks replace gradients: pre-hooks those of the results, hooks those of the arguments") {
  TwoOfTwo layer;
  std::string order;
  layer.register_full_backward_hook(
      [&order](Module&, Gradients& arguments, const Gradients& results) {
        order += "hook " + text(results);
        arguments[1] = constant(-1);
      });
  layer.register_full_backward_pre_hook([&order](Module&, Gradients& results) {
    order += "second " + text(results);
    results[0] = mul(results[0], 2.0);
  });
  layer.register_full_backward_pre_hook(
      [&order](Module&, Gradients& results) {
        order += "first ";
        results[0] = constant(7);
      },
      {.first = true});
  const Variable a = leaf(2), b = leaf(5);
  backward(std::get<0>(layer(a, b)));
  CHECK(order == "first second 7 - hook 14 - ");
  CHECK(a.grad().item<double>() == 70);
  CHECK(b.grad().item<double>() == -1);
}

struct Weighted final : nn::Layer<Weighted> {
  Weighted() : weight({.shape = {}, .dtype = DType::kF64, .init = nn::init::constant(3)}) {
    register_parameter("weight", weight);
  }
  Variable forward(const Variable& x) { return mul(x, weight.value()); }
  nn::Parameter weight;
};

TEST_CASE("where no argument needs a gradient, the hook comes with those of the results") {
  Weighted layer;
  nn::initialize(layer);
  Log log;
  layer.register_full_backward_hook(log.hook());
  const Variable y = layer(constant(4));
  backward(y);
  CHECK(log.seen == "Weighted: 1 -> - ; ");
  CHECK(layer.weight.grad().item<double>() == 4);
}

TEST_CASE("a module called twice: the hook runs for each call, the later one first") {
  Weighted layer;
  nn::initialize(layer);
  Log log;
  layer.register_full_backward_hook(log.hook());
  const Variable x = leaf(1);
  backward(layer(layer(x)));
  CHECK(log.seen == "Weighted: 1 -> 3 ; Weighted: 3 -> 9 ; ");
}

TEST_CASE("without grad mode nothing is watched; second backwards and graphs of gradients work") {
  Weighted layer;
  nn::initialize(layer);
  Log log;
  layer.register_full_backward_hook(log.hook());
  const Variable x = leaf(2);
  {
    const NoGradGuard guard;
    CHECK_FALSE(layer(x).requires_grad());
  }
  const Variable y = square(layer(x));
  const Variable first = grad(std::vector{y}, std::vector{x}, {.create_graph = true})[0];
  CHECK(first.item<double>() == 36);
  CHECK(log.seen == "Weighted: 12 -> 36 ; ");
  log.seen.clear();
  CHECK(grad(std::vector{first}, std::vector{x})[0].item<double>() == 18);
}

TEST_CASE("a pass that does not come to the arguments leaves no cycle of graphs behind") {
  const MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current().total();
  {
    Weighted layer;
    nn::initialize(layer);
    layer.register_full_backward_hook([](Module&, Gradients&, const Gradients&) {});
    const Variable y = square(layer(leaf(2)));
    // Of the weight alone; recorded, so that its gradients hold the graph.
    const Variable first =
        grad(std::vector{y}, std::vector{layer.weight.value()}, {.create_graph = true})[0];
    CHECK(first.item<double>() == 24);
  }
  CHECK(memory.current().total() == before);
}

TEST_CASE("a graph that outlives its module runs without the hooks") {
  Log log;
  std::optional<TwoOfTwo> layer(std::in_place);
  layer->register_full_backward_hook(log.hook());
  const Variable a = leaf(2);
  const Variable y = std::get<0>((*layer)(a, constant(5)));
  layer.reset();
  backward(y);
  CHECK(log.seen.empty());
  CHECK(a.grad().item<double>() == 5);
}

TEST_CASE("what backward hooks refuse") {
  TwoOfTwo layer;
  CHECK(thrown<InvalidArgument>([&] { layer.register_full_backward_hook(nullptr); }) ==
        "[nn.register_full_backward_hook] the hook is empty");
  CHECK(thrown<InvalidArgument>([&] { layer.register_full_backward_pre_hook(nullptr); }) ==
        "[nn.register_full_backward_pre_hook] the hook is empty");
  HookHandle shape =
      layer.register_full_backward_hook([](Module&, Gradients& arguments, const Gradients&) {
        arguments[0] = Variable(zeros({2}, kDouble));
      });
  CHECK(thrown<InvalidArgument>([&] { backward(std::get<0>(layer(leaf(1), leaf(2)))); }) ==
        "[nn.backward_hook] a hook replaced gradient 0 of the arguments, of shape [], by one of "
        "shape [2]");
  shape.remove();
  layer.register_full_backward_pre_hook([](Module&, Gradients& results) { results.pop_back(); });
  CHECK(thrown<InvalidArgument>([&] { backward(std::get<0>(layer(leaf(1), leaf(2)))); }) ==
        "[nn.backward_hook] a hook left 1 gradients of the results, there are 2");
}

}  // namespace
}  // namespace tessera
