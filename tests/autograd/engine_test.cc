// The backward pass: what is computed, and every error about it.
#include "tessera/autograd/engine.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

TEST_CASE("backward: gradients add up over uses, passes and roots") {
  const Variable x = scalar_leaf(3.0);
  backward(mul(x, x));
  CHECK(x.grad().item<double>() == 6);
  backward(add(mul(x, 2.0), x));
  CHECK(x.grad().item<double>() == 9);
  const std::vector<Variable> roots = {mul(x, 10.0), square(x), x};
  backward(roots, {});
  CHECK(x.grad().item<double>() == 9 + 10 + 6 + 1);
  const std::vector<Tensor> weights = {Tensor::scalar(2, {.dtype = DType::kF64}), Tensor()};
  const std::vector<Variable> same = {x, x};
  backward(same, weights);
  CHECK(x.grad().item<double>() == 26 + 3);
}

TEST_CASE("backward: one root may be an ancestor of another") {
  const Variable x = scalar_leaf(3.0);
  const Variable y = square(x);
  const Variable z = mul(y, 5.0);
  const std::vector<Variable> roots = {y, z};
  backward(roots, {});
  CHECK(x.grad().item<double>() == 6 + 30);
}

TEST_CASE("backward: a root that is a leaf") {
  const Variable x = leaf({2, 2});
  const Tensor gradient = irregular({2, 2});
  backward(x, {.gradient = gradient});
  CHECK(values(x.grad()) == values(gradient));
  const Variable y = scalar_leaf(1.0);
  backward(y);
  CHECK(y.grad().item<double>() == 1);
}

TEST_CASE("backward: many uses of one result are added in place, without touching others") {
  const Variable x = leaf({3});
  const Variable y = mul(x, 1.0);
  const Tensor gradient = irregular({3});
  Variable total = y;
  for (int i = 0; i < 5; ++i) total = add(total, y);
  backward(total, {.gradient = gradient});
  const std::vector<double> one = values(irregular({3}));
  CHECK(values(gradient) == one);
  const std::vector<double> got = values(x.grad());
  for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == Approx(6 * one[i]));
}

TEST_CASE("backward: retain_graph allows another pass, else saved tensors are gone") {
  const Variable x = scalar_leaf(3.0);
  const Variable y = square(x);
  const Variable z = mul(y, y);
  backward(z, {.retain_graph = true});
  CHECK(x.grad().item<double>() == 108);
  backward(z);
  CHECK(x.grad().item<double>() == 216);
  CHECK(thrown<StateError>([&] { backward(z); }) ==
        "[backward] backward ran already through \"mul\" and freed what it had saved; pass "
        "retain_graph to all but the last backward of this graph");
  // Also where only a part of the graph ran.
  CHECK_THAT(thrown<StateError>([&] { backward(add(y, 1.0)); }), Contains("through \"square\""));
  CHECK_FALSE(in_backward());
}

TEST_CASE("backward: what a node saved goes as soon as it ran") {
  Variable x = scalar_leaf(3.0);
  auto token = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = token;
  Variable y = mul(x, 2.0);
  bool alive_below = true;
  y.register_hook([&](const Variable&) {
    alive_below = !watch.expired();
    return Variable();
  });
  const Variable z =
      record_twice("holder", y.tensor(), {y},
                   [token](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
  token.reset();
  CHECK_FALSE(watch.expired());
  backward(z);
  CHECK_FALSE(alive_below);
}

TEST_CASE("backward: errors about roots") {
  const Variable x = leaf({2, 3});
  const Variable y = mul(x, 2.0);
  CHECK(thrown<InvalidArgument>([&] { backward(y); }) ==
        "[backward] root 0 has shape [2, 3]; only roots of one element may leave the gradient "
        "out: pass one, or sum the root");
  CHECK(thrown<InvalidArgument>([&] {
          backward(y, {.gradient = irregular({3, 2})});
        }) == "[backward] the gradient given for root 0 has shape [3, 2], f64 on " +
                  default_device().str() + ", the root has shape [2, 3], f64 on " +
                  default_device().str() + "; make both equal");
  CHECK_THAT(thrown<InvalidArgument>([&] {
               backward(y, {.gradient = cast(irregular({2, 3}), DType::kF32)});
             }),
             Contains("has shape [2, 3], f32 on " + default_device().str()));
  CHECK(thrown<StateError>([&] { backward(constant(1)); }) ==
        "[backward] root 0 has no graph: nothing it was made from requires a gradient, or grad "
        "mode was off");
  CHECK_THAT(thrown<StateError>([&] { backward(Variable()); }), Contains("is undefined"));
  const std::vector<Variable> roots = {y, y};
  const std::vector<Tensor> one = {irregular({2, 3})};
  CHECK(thrown<InvalidArgument>([&] { backward(roots, one); }) ==
        "[backward] 1 gradients for 2 roots; give one for each root, or none");
  CHECK(thrown<InvalidArgument>([&] { backward(roots, {}, {.gradient = one[0]}); }) ==
        "[backward] options.gradient belongs to a single root; pass gradients beside the roots");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("backward: nothing to do for no roots") { backward(std::span<const Variable>(), {}); }

TEST_CASE("backward: options.inputs names the leaves that accumulate") {
  Log log;
  const Variable a = scalar_leaf(2.0);
  const Variable b = scalar_leaf(3.0);
  const Variable y = mul(passing("a", a, log), passing("b", b, log));
  backward(y, {.retain_graph = true, .inputs = {b}});
  CHECK_FALSE(a.grad().defined());
  CHECK(b.grad().item<double>() == 2);
  CHECK(log == Log{"b"});
  const Variable unused = scalar_leaf(1.0);
  backward(y, {.inputs = {unused}});
  CHECK_FALSE(unused.grad().defined());
  const std::string text =
      "[backward] options.inputs[0] is not a leaf that requires a gradient; for other variables "
      "use grad()";
  CHECK(thrown<InvalidArgument>([&] { backward(y, {.inputs = {y}}); }) == text);
  CHECK(thrown<InvalidArgument>([&] { backward(y, {.inputs = {constant(1)}}); }) == text);
  CHECK(thrown<InvalidArgument>([&] { backward(y, {.inputs = {Variable()}}); }) == text);
}

TEST_CASE("backward: needs() is false where the gradient would be thrown away") {
  const Variable a = scalar_leaf(2.0);
  const Variable b = scalar_leaf(3.0);
  std::vector<bool> needed;
  const auto watch = [&] {
    return record("watch", mul(a.tensor(), b.tensor()), {a, constant(1), b},
                  [&](const Tensor& dy, const BackwardContext& context) {
                    needed = {context.needs(0), context.needs(1), context.needs(2)};
                    return std::vector<Tensor>{dy, Tensor(), dy};
                  });
  };
  backward(watch());
  CHECK(needed == std::vector<bool>{true, false, true});
  backward(watch(), {.inputs = {b}});
  CHECK(needed == std::vector<bool>{false, false, true});
}

TEST_CASE("grad: gradients of any variables, leaves untouched") {
  const Variable x = scalar_leaf(3.0);
  const Variable y = square(x);
  const Variable z = mul(y, y);
  const Variable unused = scalar_leaf(1.0);
  const std::vector<Variable> wanted = {x, y, z, unused};
  const std::vector<Variable> gradients = grad({&z, 1}, wanted, {.retain_graph = true});
  CHECK(gradients[0].item<double>() == 108);
  CHECK(gradients[1].item<double>() == 18);
  CHECK(gradients[2].item<double>() == 1);
  CHECK_FALSE(gradients[3].defined());
  CHECK_FALSE(gradients[0].requires_grad());
  CHECK_FALSE(x.grad().defined());
  const std::vector<Variable> outputs = {z, y};
  CHECK(grad(outputs, {&x, 1})[0].item<double>() == 108 + 6);
}

TEST_CASE("grad: what lies beyond the inputs is neither run nor freed") {
  Log log;
  const Variable x = scalar_leaf(3.0);
  const Variable y = square(passing("beyond", x, log));
  const Variable z = mul(y, 2.0);
  CHECK(grad({&z, 1}, {&y, 1})[0].item<double>() == 2);
  CHECK(log.empty());
  backward(y);
  CHECK(x.grad().item<double>() == 6);
}

TEST_CASE("grad: hooks of the inputs run before their gradient is taken") {
  Variable x = scalar_leaf(3.0);
  Variable y = square(x);
  const auto times_ten = [](const Variable& gradient) { return mul(gradient, 10.0); };
  y.register_hook(times_ten);
  x.register_hook(times_ten);
  const std::vector<Variable> wanted = {x, y};
  const std::vector<Variable> gradients = grad({&y, 1}, wanted);
  CHECK(gradients[0].item<double>() == 600);
  CHECK(gradients[1].item<double>() == 10);
}

TEST_CASE("grad: create_graph gives derivatives of derivatives") {
  const Variable x = scalar_leaf(2.0);
  Variable y = mul(mul(x, x), mul(x, x));
  const double expected[] = {32, 48, 48, 24};  // of x^4 at 2
  for (double value : expected) {
    CHECK(y.requires_grad());
    y = grad({&y, 1}, {&x, 1}, {.create_graph = true})[0];
    CHECK(y.item<double>() == value);
  }
  CHECK_FALSE(y.requires_grad());  // 24 whatever x is
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("grad: errors") {
  const Variable x = leaf({2});
  const Variable y = mul(x, 2.0);
  const Variable s = sum(y);
  const Variable c = constant(1);
  CHECK(thrown<InvalidArgument>([&] {
          grad({&s, 1}, {&c, 1});
        }) ==
        "[grad] input 0 does not require a gradient; set_requires_grad(true) before it is used");
  CHECK(thrown<InvalidArgument>([&] {
          grad({&s, 1}, {&x, 1}, {.inputs = {x}});
        }) == "[grad] options.inputs is for backward(); pass the inputs beside the outputs");
  CHECK_THAT(thrown<InvalidArgument>([&] {
               grad({&y, 1}, {&x, 1});
             }),
             Contains("[grad] root 0 has shape [2]"));
  CHECK_THAT(thrown<StateError>([&] {
               grad({&c, 1}, {&x, 1});
             }),
             Contains("[grad] root 0 has no graph"));
  const std::vector<Variable> two = {y, y};
  CHECK(thrown<InvalidArgument>([&] {
          grad(two, {&x, 1}, {.gradient = irregular({2})});
        }) == "[grad] options.gradient belongs to a single output, got 2 outputs");
  CHECK(values(grad({&y, 1}, {&x, 1}, {.gradient = irregular({2})})[0]) ==
        values(mul(irregular({2}), 2)));
}

TEST_CASE("derivatives: wrong answers are told") {
  const Variable x = leaf({2, 3});
  const auto answering = [&](std::vector<Tensor> tensors) {
    return record("bad", x.tensor(), {x},
                  [tensors](const Tensor&, const BackwardContext&) { return tensors; });
  };
  const Tensor one = irregular({2, 3});
  CHECK(thrown<StateError>([&] {
          backward(answering({one, one}), {.gradient = one});
        }) ==
        "[backward] the derivative of \"bad\" returned 2 gradients for 1 inputs; return one for "
        "each, undefined where there is none");
  const std::string shape = thrown<StateError>([&] {
    backward(answering({irregular({3, 2})}), {.gradient = one});
  });
  CHECK(shape ==
        "[backward] the derivative of \"bad\" returned a gradient of shape [3, 2], f64 on " +
            default_device().str() + " for its input 0 of shape [2, 3] on " +
            default_device().str() + "; both must agree, and the dtype be floating");
  CHECK_THAT(
      thrown<StateError>([&] { backward(answering({cast(one, DType::kI64)}), {.gradient = one}); }),
      Contains("[2, 3], i64 on " + default_device().str()));
}

}  // namespace
}  // namespace tessera::testing
