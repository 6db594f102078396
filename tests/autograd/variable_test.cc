// Variables, leaves and grad mode.
#include "tessera/autograd/variable.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

TEST_CASE("variable: leaves, results and identity") {
  const Variable x = leaf({2, 3});
  CHECK(x.defined());
  CHECK(x.is_leaf());
  CHECK(x.requires_grad());
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.dim(-1) == 3);
  CHECK(x.ndim() == 2);
  CHECK(x.numel() == 6);
  CHECK(x.dtype() == DType::kF64);
  CHECK(x.device() == default_device());
  const Variable y = mul(x, 2.0);
  CHECK_FALSE(y.is_leaf());
  CHECK(y.requires_grad());
  const Variable copy = y;
  CHECK(copy.same_as(y));
  CHECK_FALSE(y.same_as(y.detach()));
  CHECK(y.detach().is_leaf());
  CHECK_FALSE(y.detach().requires_grad());
  CHECK(y.detach().tensor().storage() == y.tensor().storage());
  const Variable plain = mul(Variable(x.tensor()), 2.0);
  CHECK(plain.is_leaf());
  CHECK_FALSE(plain.requires_grad());
  CHECK(plain.gradient_edge().node == nullptr);
  CHECK(x.gradient_edge().node == x.gradient_edge().node);
}

TEST_CASE("variable: an undefined one answers or says so") {
  Variable none;
  CHECK_FALSE(none.defined());
  CHECK(none.is_leaf());
  CHECK_FALSE(none.requires_grad());
  const std::string text = "the variable is undefined; give it a tensor first";
  CHECK(thrown<StateError>([&] { none.tensor(); }) == "[variable.tensor] " + text);
  CHECK(thrown<StateError>([&] { none.set_requires_grad(true); }) ==
        "[variable.set_requires_grad] " + text);
  CHECK(thrown<StateError>([&] { none.grad(); }) == "[variable.grad] " + text);
  CHECK(thrown<StateError>([&] { none.gradient_edge(); }) == "[variable.gradient_edge] " + text);
  CHECK(thrown<StateError>([&] { none.register_hook({}); }) == "[variable.register_hook] " + text);
}

TEST_CASE("variable: gradients belong to floating leaves") {
  const Tensor integers = arange(3);
  CHECK(thrown<InvalidArgument>([&] { Variable(integers, true); }) ==
        "[variable.set_requires_grad] dtype i64 cannot have a gradient; cast to a floating dtype");
  CHECK_FALSE(Variable(integers).requires_grad());
  Variable y = mul(scalar_leaf(1.0), 2.0);
  const std::string text =
      "the variable is the result of \"mul\"; only leaves allow this: detach() it";
  CHECK(thrown<StateError>([&] { y.set_requires_grad(false); }) ==
        "[variable.set_requires_grad] " + text);
  CHECK(thrown<StateError>([&] { y.set_grad({}); }) == "[variable.set_grad] " + text);
  CHECK(thrown<StateError>([&] { y.register_post_accumulate_hook({}); }) ==
        "[variable.register_post_accumulate_hook] " + text);
  CHECK(thrown<StateError>([&] { y.bind({}); }) == "[variable.bind] " + text);
  CHECK(thrown<StateError>([&] { y.set_gradient_sink({}); }) ==
        "[variable.set_gradient_sink] " + text);
}

TEST_CASE("variable: requires_grad counts when an operation is recorded") {
  Variable x = scalar_leaf(3.0);
  const Variable y = mul(x, 2.0);
  x.set_requires_grad(false);
  const Variable z = mul(x, 2.0);
  CHECK_FALSE(z.requires_grad());
  backward(y);
  CHECK(x.grad().item<double>() == 2.0);
}

TEST_CASE("variable: set_grad replaces and drops, and checks") {
  Variable x = leaf({2, 3});
  CHECK_FALSE(x.grad().defined());
  const Tensor first = irregular({2, 3});
  x.set_grad(first);
  CHECK(x.grad().storage() == first.storage());
  backward(sum(x));
  CHECK(values(x.grad()) == values(add(irregular({2, 3}), 1)));
  x.set_grad({});
  CHECK_FALSE(x.grad().defined());
  CHECK_THAT(
      thrown<InvalidArgument>([&] {
        x.set_grad(irregular({3, 2}));
      }),
      Contains("[variable.set_grad] a gradient of shape [3, 2] on " + default_device().str() +
               " does not fit a leaf of shape [2, 3] on " + default_device().str()));
  CHECK_THAT(thrown<InvalidArgument>([&] {
               x.set_grad(zeros({2, 3}, {.device = kNull}));
             }),
             Contains("of shape [2, 3] on null does not fit"));
}

TEST_CASE("variable: a gradient that was put in keeps dtype and layout while more is added") {
  Variable x = leaf({2, 3});
  const Tensor f32 = cast(irregular({3, 2}), DType::kF32).transpose(0, 1);
  x.set_grad(f32);
  backward(sum(mul(x, 2.0)));
  CHECK(x.grad().dtype() == DType::kF32);
  CHECK(x.grad().storage() == f32.storage());
  const std::vector<double> before = values(irregular({3, 2}).transpose(0, 1));
  const std::vector<double> after = values(x.grad());
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(after[i] == Approx(before[i] + 2));
}

TEST_CASE("variable: bind puts a tensor in later") {
  Variable x(Tensor(), true);
  CHECK(x.defined());
  CHECK_FALSE(x.tensor().defined());
  CHECK(thrown<StateError>([&] { x.set_grad(irregular({2})); }) ==
        "[variable.set_grad] the leaf has no tensor yet; bind one first");
  CHECK_THAT(thrown<InvalidArgument>([&] { x.bind(arange(2)); }),
             Contains("[variable.bind] dtype i64 cannot have a gradient"));
  const GradientEdge early = x.gradient_edge();
  x.bind(irregular({2}));
  CHECK(x.gradient_edge().node == early.node);
  backward(sum(x));
  CHECK(values(x.grad()) == std::vector<double>{1, 1});
  CHECK_THAT(thrown<InvalidArgument>([&] { x.bind(irregular({3})); }),
             Contains("[variable.bind] a gradient of shape [2] on " + default_device().str() +
                      " does not fit"));
  x.set_grad({});
  x.bind(irregular({3}));
  backward(sum(x));
  CHECK(values(x.grad()) == std::vector<double>{1, 1, 1});
}

TEST_CASE("variable: a gradient is counted as gradient and named after its leaf") {
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kGradient];
  Tensor value = Tensor::empty_named({5}, {.dtype = DType::kF64}, MemoryCategory::kParameter, "w");
  fill_(value, 1);
  Variable w(value, true);
  backward(sum(w));
  CHECK(w.grad().storage().name() == "w.grad");
  CHECK(memory.current()[MemoryCategory::kGradient] ==
        before + counted_bytes(default_device().type, 5 * 8));
  w.set_grad({});
  CHECK(memory.current()[MemoryCategory::kGradient] == before);
}

TEST_CASE("variable: a gradient never shares memory with what produced it") {
  const Variable a = leaf({3});
  const Variable b = leaf({3});
  const Tensor gradient = irregular({3});
  backward(add(a, b), {.gradient = gradient});
  CHECK_FALSE(a.grad().storage() == gradient.storage());
  CHECK_FALSE(a.grad().storage() == b.grad().storage());
  backward(add(a, b), {.gradient = gradient});
  CHECK(values(gradient) == values(irregular({3})));
}

TEST_CASE("variable: a graph outlives the handles of its leaves") {
  Variable y;
  bool collected = false;
  {
    Variable x = scalar_leaf(3.0);
    x.register_post_accumulate_hook([&](const Variable& v) {
      collected = true;
      CHECK(v.grad().item<double>() == 6.0);
    });
    y = square(x);
  }
  backward(y);
  CHECK(collected);
}

TEST_CASE("grad mode: guards nest and are restored by exceptions") {
  const Variable x = scalar_leaf(1.0);
  CHECK(grad_enabled());
  {
    NoGradGuard no_grad;
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE(mul(x, 2.0).requires_grad());
    {
      GradModeGuard recording(true);
      CHECK(mul(x, 2.0).requires_grad());
    }
    CHECK_FALSE(grad_enabled());
  }
  CHECK(grad_enabled());
  try {
    NoGradGuard no_grad;
    throw std::runtime_error("any");
  } catch (const std::runtime_error&) {
  }
  CHECK(grad_enabled());
}

}  // namespace
}  // namespace tessera::testing
