// Where gradients of leaves go, and when kernels may write them there directly.
#include "tessera/autograd/gradient_sink.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

// Counts what arrives on which way, and keeps it.
class CountingSink final : public GradientSink {
 public:
  explicit CountingSink(const Tensor& leaf, DType dtype) : leaf_(leaf), dtype_(dtype) {}
  std::optional<GradientSlot> take_slot(DType storable) override {
    asked.push_back(storable);
    if (storable != dtype_) return std::nullopt;
    betas.push_back(total.defined() ? 1 : 0);
    return GradientSlot{.tensor = memory(), .beta = betas.back()};
  }
  void accumulate(const Tensor& gradient) override {
    ++accumulated;
    const double beta = total.defined() ? 1 : 0;
    axpby_(memory(), gradient, {.alpha = 1, .beta = beta});
  }

  std::vector<DType> asked;
  std::vector<double> betas;
  int accumulated = 0;
  Tensor total;

 private:
  const Tensor& memory() {
    if (!total.defined()) {
      total = Tensor::empty(leaf_.shape(), {.dtype = dtype_});
      fill_(total, NAN);  // beta 0 must not read it
    }
    return total;
  }
  Tensor leaf_;
  DType dtype_;
};

struct Sunk {
  explicit Sunk(Variable v, DType dtype = DType::kF64)
      : variable(std::move(v)), sink(std::make_shared<CountingSink>(variable.tensor(), dtype)) {
    variable.set_gradient_sink(sink);
  }
  Variable variable;
  std::shared_ptr<CountingSink> sink;
};

std::vector<double> plain_gradient(const std::function<Variable(const Variable&)>& function,
                                   const Tensor& at) {
  const Variable x(at, true);
  backward(function(x));
  return values(x.grad());
}

TEST_CASE("sink: matmul and linear write the slots of leaves") {
  const Variable x(irregular({5, 3}));
  Sunk weight(leaf({4, 3}));
  Sunk bias(leaf({4}));
  backward(sum(square(linear(x, weight.variable, bias.variable))));
  CHECK(weight.sink->betas == std::vector<double>{0});
  CHECK(bias.sink->betas == std::vector<double>{0});
  CHECK(weight.sink->accumulated + bias.sink->accumulated == 0);
  const Variable b(bias.variable.tensor());
  CHECK(values(weight.sink->total) ==
        plain_gradient([&](const Variable& w) { return sum(square(linear(x, w, b))); },
                       weight.variable.tensor()));
  CHECK_FALSE(weight.variable.grad().defined());

  Sunk right(leaf({3, 2}));
  backward(sum(matmul(x, right.variable)));
  CHECK(right.sink->betas == std::vector<double>{0});
  Sunk left(leaf({2, 5}));
  backward(sum(matmul(left.variable, x)));
  CHECK(left.sink->betas == std::vector<double>{0});
}

TEST_CASE("sink: later writes add, whichever way they come") {
  const Variable x(irregular({5, 3}));
  Sunk w(leaf({3, 3}));
  // Twice by a kernel, and once through a square that cannot write in place.
  const Variable y = matmul(matmul(x, w.variable), w.variable);
  backward(add(sum(y), sum(square(w.variable))));
  CHECK(w.sink->betas == std::vector<double>{0, 1});
  CHECK(w.sink->accumulated == 1);
  const auto whole = [&](const Variable& v) {
    return add(sum(matmul(matmul(x, v), v)), sum(square(v)));
  };
  const std::vector<double> expected = plain_gradient(whole, w.variable.tensor());
  const std::vector<double> got = values(w.sink->total);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-13));
  backward(sum(matmul(x, w.variable)));
  CHECK(w.sink->betas == std::vector<double>{0, 1, 1});
}

TEST_CASE("sink: a batch of no rows writes zeros") {
  const Variable x(irregular({0, 3}));
  Sunk weight(leaf({4, 3}));
  Sunk bias(leaf({4}));
  backward(sum(linear(x, weight.variable, bias.variable)));
  CHECK(weight.sink->betas == std::vector<double>{0});
  CHECK(values(weight.sink->total) == std::vector<double>(12, 0.0));
  CHECK(values(bias.sink->total) == std::vector<double>(4, 0.0));
}

TEST_CASE("sink: another dtype goes through accumulate") {
  const Variable x(irregular({5, 3}));
  Sunk w(leaf({3, 2}), DType::kF32);
  backward(sum(matmul(x, w.variable)));
  CHECK(w.sink->asked == std::vector<DType>{DType::kF64});
  CHECK(w.sink->betas.empty());
  CHECK(w.sink->accumulated == 1);
  CHECK(w.sink->total.dtype() == DType::kF32);
}

TEST_CASE("sink: a leaf with a gradient hook is never written directly") {
  const Variable x(irregular({5, 3}));
  Sunk w(leaf({3, 2}));
  HookHandle hook = w.variable.register_hook(
      [](const Variable& gradient) { return Variable(mul(gradient.tensor(), 2)); });
  backward(sum(matmul(x, w.variable)));
  CHECK(w.sink->asked.empty());
  CHECK(w.sink->accumulated == 1);
  hook.remove();
  backward(sum(matmul(x, w.variable)));
  CHECK(w.sink->betas == std::vector<double>{1});
}

TEST_CASE("sink: an operation between keeps kernels from the slot") {
  const Variable x(irregular({5, 3}));
  Sunk w(leaf({3, 2}));
  backward(sum(matmul(x, mul(w.variable, 2.0))));
  CHECK(w.sink->asked.empty());
  CHECK(w.sink->accumulated == 1);
}

TEST_CASE("sink: untouched by create_graph's kernels, excluded leaves and grad()") {
  const Variable x(irregular({5, 3}));
  Sunk a(leaf({3, 2}));
  Sunk b(leaf({2, 4}));
  const auto loss = [&] { return sum(square(matmul(matmul(x, a.variable), b.variable))); };

  backward(loss(), {.create_graph = true});
  CHECK(a.sink->asked.empty());
  CHECK(a.sink->accumulated == 1);
  CHECK(b.sink->accumulated == 1);

  backward(loss(), {.inputs = {a.variable}});
  CHECK(a.sink->betas == std::vector<double>{1});
  CHECK(b.sink->asked.empty());
  CHECK(b.sink->accumulated == 1);

  const Variable l = loss();
  const std::vector<Variable> wanted = {a.variable, b.variable};
  const std::vector<Variable> gradients = grad({&l, 1}, wanted);
  CHECK(gradients[0].shape() == a.variable.shape());
  CHECK(gradients[1].shape() == b.variable.shape());
  CHECK(a.sink->asked.size() == 1);
  CHECK(a.sink->accumulated + b.sink->accumulated == 2);
}

TEST_CASE("sink: a plain leaf is a slot of its own") {
  const Variable x(irregular({5, 3}));
  Variable w = leaf({3, 2});
  std::vector<double> betas;
  const auto spy = [&](const Variable& v) {
    return record("spy", sum(v.tensor()), {v}, [&](const Tensor&, const BackwardContext& context) {
      CHECK(context.needs(0));
      CHECK_FALSE(context.slot(0, DType::kF32).has_value());
      const std::optional<GradientSlot> slot = context.slot(0, DType::kF64);
      REQUIRE(slot.has_value());
      betas.push_back(slot->beta);
      if (slot->beta == 0) fill_(slot->tensor, 0);
      return std::vector<Tensor>{Tensor()};
    });
  };
  backward(spy(w));
  backward(spy(w));
  CHECK(betas == std::vector<double>{0, 1});
  w.set_grad({});
  backward(spy(w));
  CHECK(betas.back() == 0);
}

TEST_CASE("sink: no slot while a graph of the gradient is recorded") {
  const Variable w = leaf({3});
  int offered = 0;
  const auto ask = [&] {
    return record_twice("ask", sum(w.tensor()), {w},
                        [&](const Variable&, const BackwardContext& context) {
                          if (context.slot(0, DType::kF64)) ++offered;
                          return Gradients{Variable()};
                        });
  };
  backward(ask(), {.create_graph = true});
  CHECK(offered == 0);
  const Variable asked = ask();
  grad({&asked, 1}, {&w, 1});
  CHECK(offered == 0);
  backward(ask());
  CHECK(offered == 1);
}

TEST_CASE("sink: set_grad belongs to the sink that is installed") {
  Sunk w(leaf({2}));
  CHECK(thrown<StateError>([&] { w.variable.set_grad(irregular({2})); }) ==
        "[variable.set_grad] another sink collects this leaf's gradient; set it there");
  w.variable.set_grad({});
  w.variable.set_gradient_sink(nullptr);
  w.variable.set_grad(irregular({2}));
  CHECK(w.variable.grad().defined());
}

TEST_CASE("sink: post-accumulate hooks fire once, after direct and other writes") {
  const Variable x(irregular({5, 3}));
  Sunk w(leaf({3, 3}));
  int calls = 0;
  w.variable.register_post_accumulate_hook([&](const Variable&) {
    ++calls;
    CHECK(w.sink->betas.size() == 2);
    CHECK(w.sink->accumulated == 1);
  });
  backward(sum(add(matmul(matmul(x, w.variable), w.variable), sum(w.variable))));
  CHECK(calls == 1);
}

}  // namespace
}  // namespace tessera::testing
