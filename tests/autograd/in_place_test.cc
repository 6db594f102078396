// Operations in place on variables: values, histories, what is refused, and what a derivative says
// when its saved tensor was overwritten.
#include "tessera/autograd/in_place.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/inplace.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using In = const std::vector<Variable>&;

// A result of an operation, so that it may be written: x itself is a leaf.
Variable result_of(const Variable& x) { return mul(x, 1.0); }

struct Case {
  const char* name;
  std::function<void(const Variable&, const Variable&)> in_place;
  std::function<Variable(const Variable&, const Variable&)> plain;
};

const std::vector<Case>& binary_cases() {
  static const std::vector<Case> cases = {
      {"add_", [](auto& x, auto& b) { add_(x, b); }, [](auto& x, auto& b) { return x + b; }},
      {"sub_", [](auto& x, auto& b) { sub_(x, b); }, [](auto& x, auto& b) { return x - b; }},
      {"add_", [](auto& x, auto& b) { add_(x, b, -0.5); },
       [](auto& x, auto& b) { return add(x, b, -0.5); }},
      {"sub_", [](auto& x, auto& b) { sub_(x, b, 3); },
       [](auto& x, auto& b) { return sub(x, b, 3); }},
      {"mul_", [](auto& x, auto& b) { mul_(x, b); }, [](auto& x, auto& b) { return x * b; }},
      {"div_", [](auto& x, auto& b) { div_(x, b); }, [](auto& x, auto& b) { return x / b; }}};
  return cases;
}

const std::vector<Case>& unary_cases() {
  static const std::vector<Case> cases = {
      {"add_", [](auto& x, auto&) { add_(x, 2.5); }, [](auto& x, auto&) { return add(x, 2.5); }},
      {"mul_", [](auto& x, auto&) { mul_(x, -3); }, [](auto& x, auto&) { return mul(x, -3); }},
      {"neg_", [](auto& x, auto&) { neg_(x); }, [](auto& x, auto&) { return neg(x); }},
      {"exp_", [](auto& x, auto&) { exp_(x); }, [](auto& x, auto&) { return exp(x); }},
      {"sqrt_", [](auto& x, auto&) { sqrt_(x); }, [](auto& x, auto&) { return sqrt(x); }},
      {"tanh_", [](auto& x, auto&) { tanh_(x); }, [](auto& x, auto&) { return tanh(x); }},
      {"relu_", [](auto& x, auto&) { relu_(x); }, [](auto& x, auto&) { return relu(x); }},
      {"sigmoid_", [](auto& x, auto&) { sigmoid_(x); }, [](auto& x, auto&) { return sigmoid(x); }},
      {"clamp_", [](auto& x, auto&) { clamp_(x, 0.4, 1.1); },
       [](auto& x, auto&) { return clamp(x, 0.4, 1.1); }},
      {"clamp_min_", [](auto& x, auto&) { clamp_min_(x, 0.7); },
       [](auto& x, auto&) { return clamp_min(x, 0.7); }},
      {"clamp_max_", [](auto& x, auto&) { clamp_max_(x, 0.7); },
       [](auto& x, auto&) { return clamp_max(x, 0.7); }},
      {"masked_fill_", [](auto& x, auto&) { masked_fill_(x, gt(x.tensor(), 0.7), 3); },
       [](auto& x, auto&) { return where(gt(x.tensor(), 0.7), 3, x); }}};
  return cases;
}

const Tensor& rows() {
  static const Tensor index = Tensor::from_vector<std::int64_t>({1, 0, 1}, {3});
  return index;
}

// Of [2, 3]: dim 1 is indexed.
const std::vector<Case>& index_cases() {
  static const std::vector<Case> cases = {
      {"index_add_", [](auto& x, auto& b) { index_add_(x, 1, rows(), b, {.alpha = 2}); },
       [](auto& x, auto& b) { return index_add(x, 1, rows(), b, {.alpha = 2}); }},
      {"index_copy_", [](auto& x, auto& b) { index_copy_(x, 1, rows(), b); },
       [](auto& x, auto& b) { return index_copy(x, 1, rows(), b); }},
      {"index_fill_", [](auto& x, auto&) { index_fill_(x, 1, rows(), 2); },
       [](auto& x, auto&) { return index_fill(x, 1, rows(), 2); }},
      {"index_put_", [](auto& x, auto& b) { index_put_(x, {gt(x.tensor(), 0.7)}, sum(b)); },
       [](auto& x, auto& b) { return where(gt(x.tensor(), 0.7), sum(b), x); }},
      {"masked_scatter_", [](auto& x, auto& b) { masked_scatter_(x, gt(x.tensor(), 0.7), b); },
       [](auto& x, auto& b) { return masked_scatter(x, gt(x.tensor(), 0.7), b); }},
      {"scatter_",
       [](auto& x, auto& b) {
         scatter_(x, 1, rows().expand({2, 3}), b);
       },
       [](auto& x, auto& b) {
         return scatter(x, 1, rows().expand({2, 3}), b);
       }},
      {"scatter_add_",
       [](auto& x, auto& b) {
         scatter_add_(x, 1, rows().expand({2, 3}), b);
       },
       [](auto& x, auto& b) {
         return scatter_add(x, 1, rows().expand({2, 3}), b);
       }}};
  return cases;
}

void check_case(const Case& c, const Shape& x_shape, const Shape& b_shape) {
  CAPTURE(c.name, x_shape.str(), b_shape.str());
  const auto in_place = [&](In in) {
    const Variable y = result_of(in[0]);
    c.in_place(y, in[1]);
    return y;
  };
  const Variable x = leaf(x_shape, 0.2, 1.5), b = leaf(b_shape, 0.3, 1.2, 0.4);
  const Variable y = in_place({x, b}), expected = c.plain(x, b);
  CHECK(values(y) == values(expected));
  CHECK(std::string(y.gradient_edge().node->name()) == c.name);
  CHECK(std::string(y.tensor().last_writer()) == c.name);
  CHECK(grad_check(in_place, {x, b}).passed);
  CHECK(grad_grad_check(in_place, {x, b}).passed);
}

TEST_CASE("in place: values and derivatives are those of the plain operations") {
  for (const Case& c : binary_cases()) {
    check_case(c, {3, 5}, {3, 5});
    check_case(c, {3, 5}, {5});
    check_case(c, {2, 3}, {2, 1});
    check_case(c, {}, {});
    check_case(c, {0, 3}, {3});
  }
  for (const Case& c : unary_cases()) {
    check_case(c, {3, 5}, {});
    check_case(c, {0}, {});
  }
  for (const Case& c : index_cases()) check_case(c, {2, 3}, {2, 3});
}

TEST_CASE("in place: gradients come in the dtypes of the operands") {
  for (const Case& c : binary_cases()) {
    CAPTURE(c.name);
    const Variable x(cast(irregular({2, 3}, 1, 2), DType::kF32), true), b = leaf({3}, 1, 2);
    const Variable y = result_of(x);
    c.in_place(y, b);
    CHECK(y.dtype() == DType::kF32);
    backward(sum(y));
    CHECK(x.grad().dtype() == DType::kF32);
    CHECK(b.grad().dtype() == DType::kF64);
    CHECK(b.grad().shape() == b.shape());
  }
}

TEST_CASE("in place: both operands the same variable") {
  for (const Case& c : binary_cases()) {
    CAPTURE(c.name);
    const auto doubled = [&](In in) {
      const Variable y = result_of(in[0]);
      c.in_place(y, y);
      return y;
    };
    const Variable x = leaf({7}, 0.5, 2);
    CHECK(values(doubled({x})) == values(c.plain(x, x)));
    CHECK(grad_check(doubled, {x}).passed);
    CHECK(grad_grad_check(doubled, {x}).passed);
  }
}

TEST_CASE("in place: what was computed before keeps the old history") {
  const Variable x = scalar_leaf(3.0);
  const Variable y = result_of(x);
  const Variable before = mul(y, 5.0);
  mul_(y, 7.0);
  add_(y, 1.0);
  const Variable after = mul(y, 2.0);
  backward(add(before, after));
  CHECK(x.grad().item<double>() == 5 + 14);
}

TEST_CASE("in place: copy_ and fill_ cut the old history") {
  const Variable x = leaf({2, 3}), source(cast(irregular({2, 3}), DType::kF32), true);
  const Variable y = result_of(x);
  copy_(y, source);
  CHECK(y.dtype() == DType::kF64);
  CHECK(values(y) == values(source));
  backward(sum(mul(y, 4.0)));
  CHECK_FALSE(x.grad().defined());
  CHECK(source.grad().dtype() == DType::kF32);
  CHECK(values(source.grad()) == std::vector<double>(6, 4));
  copy_(source, source);  // nothing to do, and so legal

  const Variable z = result_of(x);
  fill_(z, 2);
  CHECK(z.requires_grad());
  CHECK(grad({&z, 1}, {&x, 1}, {.gradient = z.tensor()})[0].defined() == false);
  const Variable w = result_of(x);
  zero_(w);
  CHECK(values(w) == std::vector<double>(6, 0));
}

TEST_CASE("in place: a leaf without gradient gets a history") {
  const Variable x = leaf({3});
  const Variable buffer(zeros({3}, {.dtype = DType::kF64}));
  add_(buffer, x);
  CHECK(buffer.requires_grad());
  CHECK_FALSE(buffer.is_leaf());
  backward(sum(buffer));
  CHECK(values(x.grad()) == std::vector<double>(3, 1));
  // A copy of the handle is the same variable.
  const Variable other(zeros({3}, {.dtype = DType::kF64})), copy = other;
  mul_(other, x);
  CHECK(copy.requires_grad());
}

TEST_CASE("in place: where nothing is recorded only the elements change") {
  const Variable x = leaf({3});
  const Variable view_of_x = slice(x, 0, 0, 2);
  const GradientEdge edge = view_of_x.gradient_edge();
  {
    NoGradGuard no_grad;
    fill_(x, 4);
    add_(view_of_x, 1);
  }
  CHECK(values(x) == std::vector<double>{5, 5, 4});
  CHECK(x.is_leaf());
  CHECK(view_of_x.gradient_edge().node == edge.node);
  const Variable plain(irregular({3}));
  const Variable part = slice(plain, 0, 1, 3);
  fill_(part, 0);
  CHECK_FALSE(plain.requires_grad());
  const Variable whole(arange(3, {.dtype = DType::kI64}));
  fill_(whole, 2);
  CHECK(whole.tensor().to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 2, 2});
}

TEST_CASE("in place: a leaf that requires a gradient is refused while recording") {
  const Variable x = leaf({2, 3});
  const std::vector<double> before = values(x);
  CHECK(thrown<StateError>([&] { add_(x, 1); }) ==
        "[add_] a leaf of shape [2, 3] that requires a gradient cannot be written while operations "
        "are recorded; use the form that makes a new tensor, or write under NoGradGuard");
  CHECK(values(x) == before);
}

TEST_CASE("in place: refused where another variable sees the memory") {
  const Variable x = leaf({2, 3});
  const std::string text =
      "[mul_] 1 other variables see the memory of this one, of shape [2, 3] (views of it, what it "
      "is a view of, or detached), and their history would be wrong; use the form that makes a new "
      "tensor";
  const auto refused = [](const Variable& v) { return thrown<StateError>([&] { mul_(v, 2.0); }); };
  const Variable y = result_of(x);
  const std::vector<double> before = values(y);
  {
    const Variable row = slice(y, 0, 0, 1);
    CHECK(refused(y) == text);
    CHECK_THAT(refused(row), Contains("of shape [1, 3]"));
  }
  {
    const Variable detached = y.detach();
    CHECK(refused(y) == text);
    mul_(detached, 1.0);  // records nothing
    CHECK_THAT(thrown<StateError>([&] { mul_(detached, y); }), Contains("1 other variables"));
  }
  CHECK(values(y) == before);
  mul_(y, 2.0);  // they are gone
  // A plain base would not learn of its view's history, nor a plain view of its base's.
  const Variable base(irregular({2, 3}));
  Variable row = slice(base, 0, 0, 1);
  CHECK_THAT(thrown<StateError>([&] { add_(row, slice(x, 0, 0, 1)); }), Contains("1 other"));
  CHECK_THAT(thrown<StateError>([&] { add_(base, x); }), Contains("1 other"));
  row = Variable();
  add_(base, x);
  CHECK(base.requires_grad());
  // A view whose base is gone.
  const Variable flat = view(result_of(x), {6});
  mul_(flat, 3.0);
  backward(sum(flat));
  CHECK(values(x.grad()) == std::vector<double>(6, 3));
}

TEST_CASE("in place: bind moves the count of variables along") {
  const Tensor a = irregular({2}), b = irregular({2});
  Variable x(a);
  CHECK(a.family_handles() == 1);
  x.bind(b);
  CHECK(a.family_handles() == 0);
  CHECK(b.family_handles() == 1);
  x = Variable();
  CHECK(b.family_handles() == 0);
}

TEST_CASE("in place: operands that do not fit") {
  const Variable x = leaf({3});
  const Variable y = result_of(x);
  CHECK(
      thrown<InvalidArgument>([&] {
        add_(y, leaf({2, 3}));
      }) ==
      "[add_] the result has shape [2, 3] and cannot be written into shape [3]; use the form that "
      "makes a new tensor");
  CHECK(thrown<InvalidArgument>([&] {
          masked_fill_(y, ones({2, 3}), 0);
        }) == "[masked_fill_] the mask has shape [2, 3], which does not broadcast to [3]");
  CHECK(thrown<InvalidArgument>([&] {
          masked_scatter_(y, ones({2, 3}, {.dtype = DType::kBool}), leaf({6}));
        }) ==
        "[masked_scatter_] the result has shape [2, 3], which does not fit the tensor that is "
        "written, of shape [3]");
  CHECK(thrown<InvalidArgument>([&] { copy_(y, leaf({1})); }) ==
        "[copy_] shapes [3] and [1] differ; they must be equal");
  const Variable wide = expand(result_of(leaf({1, 3})), {2, 3});
  CHECK(thrown<InvalidArgument>([&] { neg_(wide); }) ==
        "[neg_] elements of the tensor of shape [2, 3] with strides [0, 1] share memory; write to "
        "a copy");
  CHECK(thrown<InvalidArgument>([&] { neg_(unfold(result_of(leaf({4})), 0, 2, 1)); }) ==
        "[neg_] elements of the tensor of shape [3, 2] with strides [1, 1] share memory; write to "
        "a copy");
  const Variable whole(arange(3, {.dtype = DType::kI64}));
  CHECK(thrown<InvalidArgument>([&] { copy_(whole, x); }) ==
        "[copy_] an operand requires a gradient, which a tensor of i64 cannot carry on; detach() "
        "it");
}

TEST_CASE("in place: integers that f32 does not have") {
  constexpr std::int64_t kOdd = (std::int64_t{1} << 24) + 1;
  const auto integers = [] { return Tensor::from_vector<std::int64_t>({kOdd, -kOdd, 5}, {3}); };
  const auto after = [&](const std::function<void(const Variable&)>& write) {
    const Variable x(integers());
    write(x);
    return x.tensor().to_vector<std::int64_t>();
  };
  using List = std::vector<std::int64_t>;
  for (DType dtype : {DType::kBool, DType::kU8, DType::kF32}) {
    const Tensor mask = cast(Tensor::from_vector<float>({0, 0, 1}, {3}), dtype);
    CHECK(after([&](const Variable& x) { masked_fill_(x, mask, 7); }) == List{kOdd, -kOdd, 7});
  }
  CHECK(after([](const Variable& x) { clamp_min_(x, 6); }) == List{kOdd, 6, 6});
  CHECK(after([](const Variable& x) { clamp_max_(x, 6); }) == List{6, -kOdd, 5});
  CHECK(after([](const Variable& x) { clamp_(x, 6, 1 << 30); }) == List{kOdd, 6, 6});
  CHECK_THAT(thrown<InvalidArgument>([&] { clamp_min_(Variable(integers()), 0.5); }),
             Contains("[clamp_min_] the result is f32"));
}

TEST_CASE("in place: an overwritten saved tensor names both operations") {
  const Variable x = leaf({2, 3});
  const auto error_after = [&](const std::function<void(const Variable&)>& write) {
    const Variable h = result_of(x);
    const Variable y = sum(square(h));
    write(h);
    return thrown<StateError>([&] { backward(y); });
  };
  CHECK(error_after([](const Variable& h) { add_(h, 1); }) ==
        "[backward] a tensor of shape [2, 3] that \"square\" saved was overwritten since by "
        "\"add_\" (version 2, saved at 1); write to a copy, or after backward");
  CHECK_THAT(error_after([](const Variable& h) { fill_(h.tensor(), 1); }),
             Contains("by \"fill_\""));
  CHECK_THAT(error_after([](const Variable& h) { axpby_(h.tensor(), h.tensor(), {.beta = 1}); }),
             Contains("by \"axpby_\""));
  CHECK_THAT(error_after([](const Variable& h) { h.tensor().bump_version(); }),
             Contains("overwritten since by an operation without a name (version 2"));
  CHECK_THAT(error_after([](const Variable& h) {
               matmul_into(h.tensor(), irregular({2, 4}), irregular({4, 3}), {});
             }),
             Contains("by \"matmul_into\""));
  CHECK_THAT(error_after([](const Variable& h) {
               const Tensor t = h.tensor();
               sgd_step({{.parameter = t, .gradient = irregular({2, 3}), .lr = 1}});
             }),
             Contains("by \"sgd_step\""));
  // What an operation in place saved itself is protected too.
  const Variable z = result_of(x);
  exp_(z);
  neg_(z);
  CHECK_THAT(thrown<StateError>([&] { backward(sum(z)); }),
             Contains("\"exp_\" saved was overwritten since by \"neg_\""));
}

TEST_CASE("in place: an operation of the user's") {
  const auto cube_ = [](const Variable& x) {
    record_in_place("cube_", x, {}, [&](const Tensor& t) {
      const Variable old = detail::copy_of(x);
      tessera::copy_(t, mul(t, square(t)));
      return [old = SavedVariable(old, "cube_")](const Variable& dy, const BackwardContext&) {
        return Gradients{mul(dy, mul(square(old.unpack()), 3))};
      };
    });
  };
  const auto function = [&](In in) {
    const Variable y = result_of(in[0]);
    cube_(y);
    return y;
  };
  CHECK(grad_check(function, {leaf({5})}).passed);
  CHECK(grad_grad_check(function, {leaf({5})}).passed);
  const Variable x = leaf({2});
  const Variable y = result_of(x);
  const auto failing = [](const Tensor& t) {
    if (t.defined()) throw DataError("no");
    return [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; };
  };
  CHECK_THROWS_AS(record_in_place("failing_", y, {}, failing), DataError);
  CHECK(std::string(y.gradient_edge().node->name()) == "mul");
}

}  // namespace
}  // namespace tessera::testing
