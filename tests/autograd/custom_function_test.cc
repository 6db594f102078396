// Operations of the user's as classes.
#include "tessera/autograd/custom_function.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using In = const std::vector<Variable>&;

// (a * b * factor, exp(a)): saves inputs, a result and an option.
class ProductAndExp final : public CustomFunction {
 public:
  explicit ProductAndExp(double factor) : factor_(factor) {}
  const char* name() const override { return "product_and_exp"; }
  std::vector<Variable> forward(FunctionContext& context, In in) override {
    CHECK_FALSE(grad_enabled());
    const Variable e = exp(in[0]);
    context.save_for_backward({in[0], in[1], e});
    return {mul(mul(in[0], in[1]), factor_), e};
  }
  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    const std::vector<Variable> saved = context.saved_variables();
    Gradients out(2);
    const Variable scaled = dy[0].defined() ? mul(dy[0], factor_) : Variable();
    if (context.needs_input_grad(0)) {
      if (scaled.defined()) out[0] = mul(scaled, saved[1]);
      if (dy[1].defined()) {
        const Variable through_exp = mul(dy[1], saved[2]);
        out[0] = out[0].defined() ? add(out[0], through_exp) : through_exp;
      }
    }
    if (context.needs_input_grad(1) && scaled.defined()) out[1] = mul(scaled, saved[0]);
    return out;
  }
  bool is_twice_differentiable() const override { return true; }

 private:
  double factor_;
};

TEST_CASE("custom function: several results, saved inputs and results, twice") {
  const auto both = [](In in) {
    const std::vector<Variable> out = apply_function<ProductAndExp>(in, 3.0);
    return add(out[0], mul(out[1], 0.5));
  };
  const std::vector<Variable> inputs = {leaf({2, 3}), leaf({2, 3}, -1, 1, 0.3)};
  CHECK(grad_check(both, inputs).passed);
  CHECK(grad_grad_check(both, inputs).passed);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto one = [i](In in) { return apply_function<ProductAndExp>(in, 3.0)[i]; };
    CHECK(grad_check(one, inputs).passed);
    CHECK(grad_grad_check(one, inputs).passed);
  }
  CHECK(std::string(both(inputs).gradient_edge().node->name()) == "add");
}

TEST_CASE("custom function: a result that it saves is not kept alive by itself") {
  const Variable x = leaf({3});
  std::vector<Variable> out = apply_function<ProductAndExp>({x, x}, 1.0);
  const std::weak_ptr<GraphNode> node = out[0].gradient_edge().node;
  CHECK(out[1].gradient_edge().output_nr == 1);
  out.clear();
  CHECK(node.expired());
}

TEST_CASE("custom function: nothing is recorded where no gradient is asked for") {
  const Variable a(irregular({2})), b(irregular({2}));
  CHECK_FALSE(apply_function<ProductAndExp>({a, b}, 1.0)[0].requires_grad());
  NoGradGuard no_grad;
  CHECK_FALSE(apply_function<ProductAndExp>({leaf({2}), b}, 1.0)[0].requires_grad());
}

// Its largest element, and where it is; asks what is needed; counts objects.
class Largest final : public CustomFunction {
 public:
  explicit Largest(int* alive, bool mark_values = false) : alive_(alive), mark_(mark_values) {
    ++*alive_;
  }
  ~Largest() override { --*alive_; }
  const char* name() const override { return "largest"; }
  std::vector<Variable> forward(FunctionContext& context, In in) override {
    needed_ = context.needs_input_grad(0);
    CHECK_FALSE(context.create_graph());
    CHECK_FALSE(context.needs_input_grad(1));
    const Tensor x = in[0].tensor();
    const Variable place(argmax(x));
    const Variable doubled = mul(in[0], 2.0);
    if (mark_) context.mark_non_differentiable(doubled);
    context.save_for_backward({Variable(), doubled, place});
    return {doubled, place, in[0]};
  }
  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    CHECK(needed_);
    CHECK(dy.size() == 3);
    CHECK_FALSE(dy[1].defined());
    const std::vector<Variable> saved = context.saved_variables();
    CHECK_FALSE(saved[0].defined());
    CHECK(saved[1].defined());
    CHECK(saved[2].dtype() == DType::kI64);
    Variable total = dy[0].defined() ? mul(dy[0], 2.0) : Variable();
    if (dy[2].defined()) total = total.defined() ? add(total, dy[2]) : dy[2];
    return {total, Variable()};
  }

 private:
  int* alive_;
  bool mark_;
  bool needed_ = false;
};

TEST_CASE("custom function: results without gradients, inputs as results, undefined inputs") {
  int alive = 0;
  const Variable x = leaf({4});
  for (bool mark : {false, true}) {
    Variable(x).set_grad({});
    std::vector<Variable> out = apply_function<Largest>({x, Variable()}, &alive, mark);
    CHECK(out[0].requires_grad() == !mark);
    CHECK_FALSE(out[1].requires_grad());
    CHECK(out[2].requires_grad());
    CHECK_FALSE(out[2].same_as(x));
    CHECK(alive == 1);
    backward(add(sum(out[0]), sum(out[2])));
    CHECK(alive == 0);  // backward freed it
    CHECK(values(x.grad()) == std::vector<double>(4, mark ? 1 : 3));
  }
}

TEST_CASE("custom function: retain_graph runs it again") {
  const Variable x = scalar_leaf(2.0), b = constant(5.0);
  const Variable y = apply_function<ProductAndExp>({x, b}, 1.0)[0];
  backward(y, {.retain_graph = true});
  backward(y);
  CHECK(x.grad().item<double>() == 10);
  CHECK_THAT(thrown<StateError>([&] { backward(y); }), Contains("through \"product_and_exp\""));
}

TEST_CASE("custom function: overwriting what it saved is told") {
  const Variable x = leaf({2});
  for (std::size_t result : {std::size_t{0}, std::size_t{1}}) {
    const Variable a = mul(x, 1.0), b = mul(x, 2.0);
    const std::vector<Variable> out = apply_function<ProductAndExp>({a, b}, 1.0);
    fill_(result == 0 ? b.tensor() : out[1].tensor(), 0);
    CHECK_THAT(thrown<StateError>([&] { backward(sum(out[result])); }),
               Contains("\"product_and_exp\" saved was overwritten since by \"fill_\""));
  }
}

// sum(x^3). Its derivative leaves the graph: it computes with the saved tensor.
class OutsideTheGraph final : public CustomFunction {
 public:
  const char* name() const override { return "outside_the_graph"; }
  std::vector<Variable> forward(FunctionContext& context, In in) override {
    context.save_for_backward({in[0]});
    return {sum(mul(square(in[0]), in[0]))};
  }
  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    return {mul(dy[0], Variable(mul(square(context.saved_variables()[0].tensor()), 3)))};
  }
};

TEST_CASE("custom function: a gradient that leaves the graph is not differentiated again") {
  const Variable x = leaf({3});
  const Variable y = apply_function<OutsideTheGraph>({x})[0];
  CHECK_THAT(thrown<StateError>([&] { backward(y, {.retain_graph = true, .create_graph = true}); }),
             Contains("[outside_the_graph] its gradient was asked for with create_graph") &&
                 Contains("override is_twice_differentiable()"));
  CHECK(grad_check([](In in) { return apply_function<OutsideTheGraph>(in)[0]; }, {x}).passed);
}

enum class Misuse { kNone, kMarkOther, kSavedInForward, kSaveInBackward, kMarkInBackward, kCount };

class Misused final : public CustomFunction {
 public:
  explicit Misused(Misuse misuse) : misuse_(misuse) {}
  const char* name() const override { return "misused"; }
  std::vector<Variable> forward(FunctionContext& context, In in) override {
    if (misuse_ == Misuse::kMarkOther) context.mark_non_differentiable(in[0]);
    if (misuse_ == Misuse::kSavedInForward) context.saved_variables();
    if (misuse_ == Misuse::kNone) context.needs_input_grad(1);
    return {mul(in[0], 1.0)};
  }
  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    if (misuse_ == Misuse::kSaveInBackward) context.save_for_backward(dy);
    if (misuse_ == Misuse::kMarkInBackward) context.mark_non_differentiable(dy[0]);
    return {dy[0], dy[0]};
  }

 private:
  Misuse misuse_;
};

TEST_CASE("custom function: errors") {
  const Variable x = scalar_leaf(1.0);
  const auto call = [&](Misuse misuse) { return apply_function<Misused>({x}, misuse)[0]; };
  const auto run = [&](Misuse misuse) { backward(call(misuse)); };
  CHECK(thrown<InvalidArgument>([&] { call(Misuse::kMarkOther); }) ==
        "[misused] mark_non_differentiable was given a variable that forward does not return; mark "
        "one of its 1 results");
  CHECK(thrown<StateError>([&] { call(Misuse::kSavedInForward); }) ==
        "[misused] saved_variables was called in forward; call it in backward");
  CHECK(thrown<InvalidArgument>([&] { call(Misuse::kNone); }) ==
        "[misused] needs_input_grad(1) of 1 inputs; inputs count from 0");
  CHECK(thrown<StateError>([&] { run(Misuse::kSaveInBackward); }) ==
        "[misused] save_for_backward was called in backward; call it in forward");
  CHECK(thrown<StateError>([&] { run(Misuse::kMarkInBackward); }) ==
        "[misused] mark_non_differentiable was called in backward; call it in forward");
  CHECK_THAT(thrown<StateError>([&] { run(Misuse::kCount); }),
             Contains("the derivative of \"misused\" returned 2 gradients for 1 inputs"));
  CHECK(grad_enabled());
}

}  // namespace
}  // namespace tessera::testing
