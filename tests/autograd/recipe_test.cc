// Results that are computed again in backward in place of being kept: set_recipe.
#include <catch2/catch.hpp>
#include <functional>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/ops/inplace.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

// 3 x, whose recipe counts its calls.
struct Tripled {
  int calls = 0;
  Variable operator()(const Variable& x) {
    const Variable result = record_twice(
        "tripled", mul(x.tensor(), 3), {x},
        [](const Variable& dy, const BackwardContext&) { return Gradients{mul(dy, 3)}; });
    set_recipe(result, [this, x = SavedVariable(x, "tripled")] {
      ++calls;
      return mul(x.unpack().tensor(), 3);
    });
    return result;
  }
};

TEST_CASE("recipe: the result is computed again, once for all nodes that saved it") {
  const Variable x = leaf({2, 3}), a = leaf({2, 3}), b = leaf({2, 3});
  Tripled tripled;
  Variable y = tripled(x);
  const std::vector<double> expected = values(y.tensor());
  Variable loss = sum(add(mul(a, y), mul(y, b)));
  y = Variable();
  backward(loss);
  CHECK(tripled.calls == 1);
  CHECK(values(a.grad()) == expected);
  CHECK(values(b.grad()) == expected);
}

TEST_CASE("recipe: a result that is still there is used") {
  const Variable x = leaf({5}), a = leaf({5});
  Tripled tripled;
  const Variable y = tripled(x);
  backward(sum(mul(a, y)));
  CHECK(tripled.calls == 0);
  CHECK(values(a.grad()) == values(y.tensor()));
}

TEST_CASE("recipe: a graph that is retained computes once") {
  const Variable x = leaf({5}), a = leaf({5});
  Tripled tripled;
  const Variable loss = sum(mul(a, tripled(x)));
  backward(loss, {.retain_graph = true});
  backward(loss);
  CHECK(tripled.calls == 1);
}

TEST_CASE("recipe: a graph of the gradient leads through the node of the result") {
  const Variable x = leaf({4}), a = leaf({4});
  Tripled tripled;
  int seen = 0;
  Variable y = tripled(x);
  y.register_hook([&seen](const Variable& gradient) {
    ++seen;
    return gradient;
  });
  const Variable loss = sum(mul(a, square(y)));
  y = Variable();
  const std::vector<Variable> first = grad({&loss, 1}, {&a, 1}, {.create_graph = true});
  CHECK(seen == 0);
  backward(sum(first[0]));  // (3 x)^2
  CHECK(tripled.calls == 1);
  CHECK(seen == 1);
  const std::vector<double> got = values(x.grad()), expected = values(mul(x.tensor(), 18));
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(got[i] == Approx(expected[i]));
}

TEST_CASE("recipe: a result or an operand that was overwritten is reported") {
  const Variable a = leaf({4});
  Tripled tripled;
  {
    const Variable x = leaf({4});
    const Variable y = tripled(x);
    const Variable loss = sum(mul(a, y));
    fill_(y.tensor(), 1);
    CHECK_THAT(thrown<StateError>([&] { backward(loss); }),
               Contains("a tensor of shape [4] that \"mul\" saved was overwritten since by"));
  }
  const Variable x = leaf({4});
  const Variable loss = sum(mul(a, tripled(x)));
  fill_(x.tensor(), 1);
  CHECK_THAT(thrown<StateError>([&] { backward(loss); }),
             Contains("a tensor of shape [4] that \"tripled\" saved was overwritten since by"));
}

TEST_CASE("recipe: not of a result that was written since") {
  const Variable x = leaf({4}), a = leaf({4});
  Tripled tripled;
  const std::vector<double> expected = values(add(mul(x.tensor(), 3), 2));
  for (const bool recorded : {true, false}) {
    Variable y = tripled(x);
    if (recorded) {
      add_(y, 2);
    } else {
      add_(y.tensor(), 2);
    }
    const Variable loss = sum(mul(a, y));
    y = Variable();
    Variable(a).set_grad({});
    backward(loss);
    CHECK(values(a.grad()) == expected);
  }
  CHECK(tripled.calls == 0);
}

TEST_CASE("recipe: only of results with a history") {
  const char* const text =
      "[set_recipe] the result has no history: no node keeps what the recipe reads";
  CHECK(thrown<StateError>([] { set_recipe(constant(1), [] { return Tensor(); }); }) == text);
  CHECK(thrown<StateError>([] { set_recipe(leaf({2}), [] { return Tensor(); }); }) == text);
}

using Function = std::function<Variable(const Variable&)>;
Variable gated(const Variable& x) { return swiglu(x, mul(x, 2)); }

// The gradients of a product of f's result, which `holds` keeps until backward.
std::vector<std::vector<double>> gradients(const Function& f, DType dtype, bool holds) {
  const Variable x(cast(irregular({5, 7}), dtype), true), w(cast(irregular({3, 7}), dtype), true);
  Variable y = f(x);
  const Variable loss = sum(square(linear(y, w, Variable())));
  if (!holds) y = Variable();
  backward(loss);
  return {values(x.grad()), values(w.grad())};
}

// A weight like x's last dim, or a bias.
Variable parameter(const Variable& x, double offset) {
  return Variable(cast(irregular({x.dim(-1)}, 0.5, 2, offset), x.dtype()));
}
const Function kNorms[] = {
    [](const Variable& x) { return layer_norm(x, parameter(x, 0.3), parameter(x, 0.7), {}); },
    [](const Variable& x) { return layer_norm(x, Variable(), Variable(), {}); },
    [](const Variable& x) { return rms_norm(x, parameter(x, 0.3), {}); },
    [](const Variable& x) {
      return add_layer_norm(x, mul(x, 0.7), parameter(x, 0.3), parameter(x, 0.7), {}).y;
    },
    [](const Variable& x) { return add_rms_norm(x, mul(x, 0.7), parameter(x, 0.3), {}).y; }};

TEST_CASE("recipe: activations and norms have the same gradients, bit for bit") {
  std::vector<Function> functions = {[](const Variable& x) { return gelu(x); },
                                     [](const Variable& x) { return gelu_tanh(x); },
                                     [](const Variable& x) { return silu(x); }, gated};
  functions.insert(functions.end(), std::begin(kNorms), std::end(kNorms));
  for (const Function& f : functions) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      CHECK(gradients(f, dtype, false) == gradients(f, dtype, true));
    const Variable w = leaf({3, 7});
    const auto product = [&](const std::vector<Variable>& in) {
      return linear(f(in[0]), in[1], Variable());
    };
    const Variable x = leaf({5, 7});
    CHECK(grad_check(product, {x, w}).passed);
    CHECK(grad_grad_check(product, {x, w}).passed);
  }
}

// Bytes of activations that a forward keeps.
std::int64_t kept(const std::function<Variable()>& forward) {
  const MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kActivation];
  const Variable loss = forward();
  return memory.current()[MemoryCategory::kActivation] - before;
}

TEST_CASE("recipe: a network keeps the operands of activations and not their results") {
  constexpr std::int64_t kRows = 128, kIn = 16, kHidden = 256;
  const Variable x = leaf({kRows, kIn}), up = leaf({kHidden, kIn}), down = leaf({kIn, kHidden});
  const auto bytes = static_cast<std::int64_t>(kRows * kHidden * sizeof(double));
  for (const ActivationKind kind :
       {ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
    const std::int64_t all =
        kept([&] { return sum(linear(linear(x, up, Variable(), kind), down, Variable())); });
    CHECK(all >= bytes);
    CHECK(all < bytes + bytes / 2);
  }
}

TEST_CASE("activations: a gradient takes the memory of an operand that no handle keeps") {
  const Variable start = leaf({128, 64});
  const auto bytes = static_cast<std::int64_t>(128 * 64 * sizeof(double));
  const auto gradient = [&](const Function& f, bool retain, bool holds) {
    Variable x = mul(start, 1.5), loss = sum(f(x));
    const std::vector<double> before = values(x);
    const Variable held = holds ? x : Variable();
    x = Variable();
    BackwardOptions options;
    options.retain_graph = retain;
    const std::vector<double> g = values(grad({&loss, 1}, {&start, 1}, options)[0]);
    if (holds) CHECK(values(held) == before);
    return g;
  };
  const Function functions[] = {[](const Variable& x) { return gelu(x); },
                                [](const Variable& x) { return gelu_tanh(x); },
                                [](const Variable& x) { return silu(x); }};
  for (const Function& f : functions) {
    const std::vector<double> retained = gradient(f, true, false);
    CHECK(gradient(f, false, false) == retained);
    CHECK(gradient(f, false, true) == retained);
    // Beside the operand backward needs one gradient at a time: of f's result, then of start.
    MemoryCounters& memory = current_rank_context()->memory();
    const Variable loss = sum(mul(f(mul(start, 1.5)), 2));
    memory.reset_peak();
    const std::int64_t before = memory.current().total();
    grad({&loss, 1}, {&start, 1}, {});
    CHECK(memory.peak_total() < before + bytes + bytes / 2);
  }
}

TEST_CASE("recipe: a network keeps the operands of norms and on the CPU not their results") {
  constexpr std::int64_t kRows = 128, kIn = 64;
  const Variable start = leaf({kRows, kIn}), w = leaf({3, kIn});
  const auto bytes = static_cast<std::int64_t>(kRows * kIn * sizeof(double));
  for (const Function& norm : kNorms) {
    const std::int64_t operand = kept([&] { return sum(norm(mul(start, 2))); });
    const std::int64_t all = kept([&] { return sum(linear(norm(mul(start, 2)), w, Variable())); });
    CHECK(operand >= bytes);
    CHECK((all < operand + bytes / 2) == !start.device().is_cuda());
  }
}

TEST_CASE("recipe: a norm whose parameters are as large as its result keeps the result") {
  const Variable start = leaf({1, 4096}), w = leaf({3, 4096}), scale = leaf({4096});
  const auto bytes = static_cast<std::int64_t>(4096 * sizeof(double));
  const std::int64_t all =
      kept([&] { return sum(linear(layer_norm(mul(start, 2), scale, scale, {}), w, Variable())); });
  CHECK(all >= 2 * bytes);
  CHECK(all < 3 * bytes);
}

TEST_CASE("linear: a result that was computed again is gone before the gradient is made") {
  // So many rows that the CPU's workspace of products is small beside them.
  const auto made = [](const Shape& shape) {
    return Variable(cast(irregular(shape), DType::kF32), true);
  };
  const Variable start = made({8192, 64}), w = made({64, 64});
  const auto bytes = static_cast<std::int64_t>(8192 * 64 * sizeof(float));
  Tripled tripled;
  const auto peak = [&](bool retain) {
    const Variable loss = sum(mul(linear(tripled(start), w, Variable()), 2));
    MemoryCounters& memory = current_rank_context()->memory();
    memory.reset_peak();
    const std::int64_t before = memory.current().total();
    grad({&loss, 1}, std::vector{start, w}, {.retain_graph = retain});
    return memory.peak_total() - before;
  };
  // On a GPU the workspace of products, up to 32 MiB, would hide the difference.
  if (start.device().is_cpu()) {
    // The gradient of the product's result, and beside it the input or the input's gradient.
    CHECK(peak(false) < 2 * bytes + bytes / 2);
    CHECK(peak(true) > 2 * bytes + bytes / 2);
  }
  tripled.calls = 0;
  const Variable loss = sum(linear(tripled(start), w, Variable()));
  backward(loss, {.retain_graph = true});
  backward(loss);
  CHECK(tripled.calls == 1);
}

TEST_CASE("linear: no gradient of a weight that was overwritten") {
  const Variable x = leaf({5, 3}), w = leaf({4, 3});
  const Variable loss = sum(linear(x, w, Variable()));
  fill_(w.tensor(), 1);
  CHECK_THAT(thrown<StateError>([&] { backward(loss); }), Contains("was overwritten since"));
  CHECK(!w.grad().defined());
}

TEST_CASE("recipe: a norm is computed again with the parameters of its forward") {
  const Variable x = leaf({5, 7}), w = leaf({3, 7});
  const auto gradient = [&](bool changes) {
    const Variable scale = leaf({7}), shift = leaf({7});
    const Variable loss = sum(square(linear(layer_norm(x, scale, shift, {}), w, Variable())));
    if (changes) {
      fill_(scale.tensor(), 100);
      fill_(shift.tensor(), -50);
    }
    return values(grad({&loss, 1}, {&w, 1}, {})[0]);
  };
  CHECK(gradient(true) == gradient(false));
}

}  // namespace
}  // namespace tessera::testing
