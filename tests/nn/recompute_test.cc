// Recompute as a property of a module.

#include "tessera/nn/recompute.h"

#include <catch2/catch.hpp>
#include <optional>
#include <tuple>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/double_options.h"

namespace tessera {
namespace {

using testing::kDouble;
using testing::thrown;
using testing::values;

struct Output {
  Variable y;
  std::optional<Variable> hidden;
  std::string note;
  template <class F>
  void visit_tensors(F&& f) {
    f(y, hidden);
  }
};

class Block final : public nn::Layer<Block> {
 public:
  Block()
      : up_({.in = 3, .out = 4, .dtype = DType::kF64}),
        down_({.in = 4, .out = 3, .dtype = DType::kF64}) {
    register_module("up", up_);
    register_module("down", down_);
  }
  Output forward(const Variable& x, double scale) {
    ++forwards;
    const Variable hidden = dropout(gelu(up_(x)), {.p = 0.5, .training = true, .layer = "drop"});
    return {mul(down_(hidden), scale), mul(hidden, 2.0), "kept"};
  }
  nn::Linear up_, down_;
  int forwards = 0;
};

struct Trained {
  std::vector<double> y, hidden, dx;
  std::vector<std::vector<double>> gradients;
  bool operator==(const Trained&) const = default;
};

Trained run(Block& block) {
  const random::StepScope step({.seed = 3, .step = 1});
  const Variable x(reshape(arange(6, kDouble), {2, 3}), true);
  const Output out = block(x, 0.5);
  CHECK(out.note == "kept");
  backward(add(sum(square(out.y)), sum(*out.hidden)));
  Trained trained{values(out.y.tensor()), values(out.hidden->tensor()), values(x.grad()), {}};
  for (nn::Parameter& p : block.parameters()) {
    trained.gradients.push_back(values(p.grad()));
    p.zero_grad();
  }
  return trained;
}

TEST_CASE("recompute runs forward twice and changes neither bits, names nor results") {
  Block block;
  nn::initialize(block);
  const Trained plain = run(block);
  CHECK(block.forwards == 1);
  nn::recompute(block);
  CHECK(block.is_recomputed());
  CHECK(run(block) == plain);
  CHECK(block.forwards == 3);
  CHECK(block.named_parameters().front().name == "up.weight");
  nn::recompute(block, false);
  CHECK(run(block) == plain);
  CHECK(block.forwards == 4);
}

TEST_CASE("the module's own hooks run once, those inside it with each forward") {
  Block block;
  nn::initialize(block);
  nn::recompute(block);
  int outer = 0, inner = 0, backwards = 0;
  block.register_forward_pre_hook([&](nn::Module&, const nn::VisitVariables&) { ++outer; });
  block.register_forward_hook([&](nn::Module&, const nn::VisitVariables*) { ++outer; });
  block.register_full_backward_hook(
      [&](nn::Module&, Gradients& arguments, const Gradients& results) {
        ++backwards;
        CHECK(arguments.size() == 1);
        CHECK(results.size() == 2);
      });
  block.up_.register_forward_hook([&](nn::Module&, const nn::VisitVariables*) { ++inner; });
  run(block);
  CHECK(outer == 2);
  CHECK(inner == 2);
  CHECK(backwards == 1);
}

struct Referring final : nn::Layer<Referring> {
  Variable forward(const Variable& x, int& calls) {
    ++calls;
    return x;
  }
};

struct MoveOnly final : nn::Layer<MoveOnly> {
  Variable forward(const Variable& x, std::unique_ptr<int>) { return x; }
};

}  // namespace
}  // namespace tessera

template <>
inline constexpr bool tessera::nn::holds_no_tensors<std::unique_ptr<int>> = true;

namespace tessera {
namespace {

TEST_CASE("what recompute refuses") {
  const Variable x(Tensor::scalar(1, kDouble), true);
  Referring referring;
  int calls = 0;
  referring(x, std::ref(calls));
  nn::recompute(referring);
  CHECK(thrown<StateError>([&] { referring(x, std::ref(calls)); }) ==
        "[nn.recompute] this module's forward cannot run twice: an argument is passed by std::ref, "
        "which it may change; pass values, or switch recompute off");
  MoveOnly move_only;
  move_only(x, std::make_unique<int>(1));
  nn::recompute(move_only);
  CHECK(thrown<StateError>([&] { move_only(x, std::make_unique<int>(1)); }) ==
        "[nn.recompute] this module's forward cannot run twice: an argument cannot be copied; pass "
        "values, or switch recompute off");
  std::optional<Block> block(std::in_place);
  nn::initialize(*block);
  nn::recompute(*block);
  const Variable in(zeros({1, 3}, kDouble), true);
  const Output out = (*block)(in, 1.0);
  block.reset();
  CHECK(thrown<StateError>([&] { backward(sum(out.y)); }) ==
        "[nn.recompute] backward wants to run the forward of a module that was destroyed: keep the "
        "model until backward is done");
}

TEST_CASE("without arguments that need gradients, parameters still get theirs") {
  Block block;
  nn::initialize(block);
  nn::recompute(block);
  const random::StepScope step({.seed = 3, .step = 1});
  backward(sum(block(Variable(full({2, 3}, 1, kDouble)), 1.0).y));
  CHECK(block.up_.weight().grad().defined());
  CHECK(block.forwards == 2);
}

}  // namespace
}  // namespace tessera
