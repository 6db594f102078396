// The first NaN or Inf, forward and backward: the operation that made it, its module, and the
// values of the tensor.
#include "tessera/autograd/anomaly.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/inplace.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/recompute.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;

Variable f64_leaf(const std::vector<double>& values) {
  return Variable(Tensor::from_vector(values, {static_cast<std::int64_t>(values.size())}), true);
}

TEST_CASE("anomaly: off, nothing is checked; the guard nests") {
  CHECK_FALSE(detail::anomaly_mode());
  CHECK(std::isnan(values(log(f64_leaf({-1})))[0]));
  {
    AnomalyGuard on;
    CHECK(detail::anomaly_mode());
    AnomalyGuard off(false);
    CHECK(std::isnan(values(log(f64_leaf({-1})))[0]));
  }
  CHECK_FALSE(detail::anomaly_mode());
}

TEST_CASE("anomaly: forward names operation, module and what the result holds") {
  const auto root = make_scope_name(), block = make_scope_name();
  block->set("3", root);
  AnomalyGuard anomaly;
  NamedScope in_root(*root);
  NamedScope in_block(*block);
  CHECK(thrown<AnomalyError>([] {
          log(f64_leaf({1, -1, 0, std::exp(2.0)}));
        }) ==
        "[anomaly] result 0 of \"log\" in \"3\" holds 1 NaN and 1 Inf among 4 elements; the 2 "
        "finite ones from 0 to 2, mean 1; shape [4], f64; look at what it was computed from");
}

TEST_CASE("anomaly: what is not recorded is checked too, as are all results") {
  AnomalyGuard anomaly;
  const Variable zero = constant(0.0);
  CHECK(thrown<AnomalyError>([&] { div(constant(1.0), zero); }) ==
        "[anomaly] result 0 of \"div\" outside modules holds 0 NaN and 1 Inf among 1 elements; "
        "none is finite; shape [], f64; look at what it was computed from");
  const Tensor fine = irregular({3}), wrong = log(Tensor::from_vector<double>({-1}, {1}));
  const Variable x = leaf({3});
  for (const Variable& input : {x, Variable(fine)}) {
    CHECK_THAT(thrown<AnomalyError>([&] {
                 record_differentiable("pair", {fine, wrong}, {&input, 1}, {});
               }),
               Contains("result 1 of \"pair\""));
  }
  // Integers and tensors of nothing hold no NaN; on the null device there is nothing to read.
  CHECK_NOTHROW(sum(Variable(arange(3, {.dtype = DType::kI64}))));
  CHECK_NOTHROW(log(leaf({0})));
  CHECK_NOTHROW(log(Variable(zeros({3}, {.device = kNull}), true)));
}

TEST_CASE("anomaly: operations in place") {
  AnomalyGuard anomaly;
  const Variable zero(zeros({2}, {.dtype = DType::kF64}));
  CHECK_THAT(thrown<AnomalyError>([&] { div_(zero, zero); }), Contains("result 0 of \"div_\""));
  const Variable y = mul(f64_leaf({1, 2}), 1.0);
  CHECK_THAT(thrown<AnomalyError>([&] { mul_(y, HUGE_VAL); }), Contains("result 0 of \"mul_\""));
}

TEST_CASE("anomaly: every floating dtype") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    CAPTURE(dtype_name(dtype));
    CHECK(detail::all_finite(cast(irregular({70}), dtype)));
    std::vector<double> numbers(70, 1.0);
    for (double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      numbers[33] = bad;
      CHECK_FALSE(detail::all_finite(cast(Tensor::from_vector(numbers, {70}), dtype)));
    }
  }
  CHECK(detail::all_finite(Tensor()));
}

// Its derivative is Inf.
Variable poisoned(const Variable& x) {
  return record_twice("poisoned", x.tensor(), {x}, [](const Variable& dy, const BackwardContext&) {
    return Gradients{div(dy, constant(0.0))};
  });
}

TEST_CASE("anomaly: backward names the operation of forward and where it was recorded") {
  const auto block = make_scope_name();
  block->set("encoder", make_scope_name());
  const Variable x = f64_leaf({0.5, 2});
  AnomalyGuard anomaly;
  const auto forward = [&] {
    NamedScope scope(*block);
    return poisoned(square(x));
  };
  CHECK(thrown<AnomalyError>([&] { backward(sum(forward())); }) ==
        "[backward] gradient 0 from the derivative of \"poisoned\", recorded in \"encoder\", holds "
        "0 NaN and 2 Inf among 2 elements; none is finite; shape [2], f64; look at what it was "
        "computed from");
  CHECK_FALSE(in_backward());
  CHECK(detail::anomaly_mode());
  CHECK_FALSE(x.grad().defined());
  Variable y;
  {
    AnomalyGuard off(false);
    y = sum(forward());
  }
  CHECK_THAT(thrown<AnomalyError>([&] { backward(y); }),
             Contains("of \"poisoned\", recorded outside anomaly mode,"));
}

TEST_CASE("anomaly: the gradient of a root, and sums that overflow") {
  const Variable x = f64_leaf({1, 2});
  AnomalyGuard anomaly;
  const Tensor bad = log(Tensor::from_vector<double>({-1, 1}, {2}));
  CHECK_THAT(thrown<AnomalyError>([&] { backward(mul(x, 2.0), {.gradient = bad}); }),
             Contains("the gradient of result 0 of \"mul\", recorded outside modules, holds 1 NaN "
                      "and 0 Inf among 2"));
  const Variable y = mul(x, 1.0);
  const Tensor large = full({2}, 1.5e308, {.dtype = DType::kF64});
  const std::vector<Variable> roots = {neg(y), neg(y)};
  const std::vector<Tensor> gradients = {large, large};
  CHECK_THAT(thrown<AnomalyError>([&] { backward(roots, gradients); }),
             Contains("the gradient of result 0 of \"mul\"") && Contains("0 NaN and 2 Inf"));
}

TEST_CASE("anomaly: gradients that kernels would write into a leaf directly") {
  const Variable x(Tensor::from_vector<double>({1e200, 1, 1, 1}, {2, 2}));
  const Variable w = leaf({2, 2});
  AnomalyGuard anomaly;
  const Variable y = matmul(x, w);
  CHECK_THAT(thrown<AnomalyError>([&] {
               backward(y, {.gradient = full({2, 2}, 1e200, {.dtype = DType::kF64})});
             }),
             Contains("gradient 1 from the derivative of \"matmul\""));
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("anomaly: a sound step gives the bits that it gives without") {
  const Variable x(irregular({4, 3}));
  const auto gradients = [&](bool on) {
    AnomalyGuard anomaly(on);
    const Variable w = leaf({2, 3}), b = leaf({2});
    backward(sum(gelu(linear(x, w, b))));
    std::vector<double> all = values(w.grad());
    for (double value : values(b.grad())) all.push_back(value);
    return all;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("anomaly: inside a recomputation") {
  const Variable x = scalar_leaf(1.0);
  int runs = 0;
  AnomalyGuard anomaly;
  const Variable y =
      recompute([&](const Variable& h) { return ++runs == 1 ? mul(h, 1.0) : log(neg(h)); }, x);
  CHECK_THAT(thrown<AnomalyError>([&] { backward(y); }), Contains("result 0 of \"log\""));
  const Variable z = recompute([](const Variable& h) { return poisoned(h); }, x);
  CHECK_THAT(thrown<AnomalyError>([&] { backward(z); }),
             Contains("from the derivative of \"poisoned\", recorded outside modules"));
}

}  // namespace
}  // namespace tessera::testing
