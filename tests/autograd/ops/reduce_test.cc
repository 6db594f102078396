// Reductions, extremes and sorting: the value against the tensor operation, derivatives against
// differences.
#include "tessera/autograd/ops/reduce.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Reduction {
  const char* name;
  std::function<Variable(const Variable&, const DimList&, bool)> differentiable;
  std::function<Tensor(const Tensor&, const DimList&, bool)> plain;
  bool empty = true;  // defined for no elements, with a derivative
};

Reduction norm_case(const char* name, double p) {
  return {.name = name,
          .differentiable = [p](const Variable& x, const DimList& dims,
                                bool keep) { return norm(x, dims, {.p = p, .keep_dims = keep}); },
          .plain = [p](const Tensor& x, const DimList& dims,
                       bool keep) { return norm(x, dims, {.p = p, .keep_dims = keep}); },
          .empty = std::isfinite(p)};
}

#define TESSERA_REDUCTION(op, of_none)                                                         \
  Reduction {                                                                                  \
    .name = #op,                                                                               \
    .differentiable = [](const Variable& x, const DimList& d, bool k) { return op(x, d, k); }, \
    .plain = [](const Tensor& x, const DimList& d, bool k) { return op(x, d, k); },            \
    .empty = of_none                                                                           \
  }
#define TESSERA_DEVIATION(op, divisor_correction)                                                 \
  Reduction {                                                                                     \
    .name = #op,                                                                                  \
    .differentiable =                                                                             \
        [](const Variable& x, const DimList& d, bool k) {                                         \
          return op(x, d, {.correction = divisor_correction, .keep_dims = k});                    \
        },                                                                                        \
    .plain = [](const Tensor& x, const DimList& d,                                                \
                bool k) { return op(x, d, {.correction = divisor_correction, .keep_dims = k}); }, \
    .empty = false                                                                                \
  }

std::vector<Reduction> reductions() {
  return {TESSERA_REDUCTION(sum, true),
          TESSERA_REDUCTION(prod, true),
          TESSERA_REDUCTION(amax, false),
          TESSERA_REDUCTION(amin, false),
          TESSERA_REDUCTION(logsumexp, true),
          TESSERA_DEVIATION(var, 1),
          TESSERA_DEVIATION(var, 0.5),
          TESSERA_DEVIATION(stddev, 1),
          norm_case("norm 1", 1),
          norm_case("norm 2", 2),
          norm_case("norm 3", 3),
          norm_case("norm 1.5", 1.5),
          norm_case("norm 0.5", 0.5),
          norm_case("norm 0", 0),
          norm_case("norm inf", kInf),
          norm_case("norm -inf", -kInf)};
}

#undef TESSERA_REDUCTION
#undef TESSERA_DEVIATION

TEST_CASE("reductions: any dims, with and without keep_dims") {
  for (const Reduction& op : reductions()) {
    for (const DimList& dims : {DimList{}, DimList{0}, DimList{-1}, DimList{0, 2}, DimList{2, 1}}) {
      for (bool keep_dims : {false, true}) {
        INFO(op.name << " " << (dims.empty() ? 99 : *dims.begin()));
        const Variable x = leaf({3, 2, 4}, -2, 2);
        CHECK(values(op.differentiable(x, dims, keep_dims)) ==
              values(op.plain(x.tensor(), dims, keep_dims)));
        check_twice([&](const Inputs& in) { return op.differentiable(in[0], dims, keep_dims); },
                    {x});
      }
    }
    check_twice(
        [&](const Inputs& in) {
          return square(op.differentiable(transpose(in[0], 0, 1), {0}, false));
        },
        {leaf({3, 4}, -2, 2)});
    if (op.empty) {
      const Variable none = leaf({2, 0});
      check_twice([&](const Inputs& in) { return op.differentiable(in[0], {1}, false); }, {none});
    }
    CHECK_THROWS_AS(op.differentiable(leaf({2}), {1}, false), InvalidArgument);
  }
}

Variable of(const std::vector<double>& x) {
  return Variable(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), true);
}

std::vector<double> gradient_of(const std::function<Variable(const Variable&)>& function,
                                const std::vector<double>& at) {
  const Variable x = of(at);
  backward(function(x));
  return values(x.grad());
}

TEST_CASE("prod: zeros among the factors") {
  const auto product = [](const Variable& x) { return prod(x); };
  CHECK(gradient_of(product, {2, 0, 3}) == std::vector<double>{0, 6, 0});
  CHECK(gradient_of(product, {0, 0, 3}) == std::vector<double>{0, 0, 0});
  CHECK(gradient_of(product, {2, 5, 3}) == std::vector<double>{15, 6, 10});
  for (const auto& x : std::vector<std::vector<double>>{{2, 0, 3}, {0, 0, 3}, {0, 0, 0}})
    check_twice([](const Inputs& in) { return prod(in[0]); }, {of(x)});
}

TEST_CASE("amax and amin: equals share the gradient") {
  CHECK(gradient_of([](const Variable& x) { return amax(x); }, {1, 4, 4, 2, 4, 4}) ==
        std::vector<double>{0, 0.25, 0.25, 0, 0.25, 0.25});
  CHECK(gradient_of([](const Variable& x) { return min(x); }, {1, 4, 1}) ==
        std::vector<double>{0.5, 0, 0.5});
  CHECK(gradient_of([](const Variable& x) { return norm(x, {}, {.p = kInf}); }, {-4, 4, 1}) ==
        std::vector<double>{-0.5, 0.5, 0});
}

TEST_CASE("logsumexp, stddev and norm: gradients at the edges") {
  const auto lse = [](const Variable& x) { return logsumexp(x); };
  CHECK(gradient_of(lse, {-kInf, -kInf}) == std::vector<double>{0, 0});
  CHECK(gradient_of(lse, {-kInf, 3}) == std::vector<double>{0, 1});
  for (double weight : gradient_of(lse, {1000, 1000})) CHECK(weight == Approx(0.5));
  CHECK(gradient_of([](const Variable& x) { return stddev(x); }, {2, 2, 2}) ==
        std::vector<double>{0, 0, 0});
  for (double p : {0.0, 0.5, 1.0, 2.0, 3.0, kInf}) {
    INFO(p);
    CHECK(gradient_of([p](const Variable& x) { return norm(x, {}, {.p = p}); }, {0, 0}) ==
          std::vector<double>{0, 0});
  }
  CHECK(gradient_of([](const Variable& x) { return norm(x); }, {3, -4, 0})[2] == 0);
}

TEST_CASE("var_mean, std_mean, cumsum") {
  const Inputs x = {leaf({3, 4})};
  check_twice(
      [](const Inputs& in) {
        const VariableVarMean both = var_mean(in[0], {1}, {.correction = 0});
        return add(both.var, square(both.mean));
      },
      x);
  CHECK(values(var_mean(x[0], {0}).mean) == values(mean(x[0].tensor(), {0})));
  check_twice(
      [](const Inputs& in) {
        const VariableStdMean both = std_mean(in[0], {1}, {.keep_dims = true});
        return mul(both.stddev, square(both.mean));
      },
      x);
  CHECK(values(std_mean(x[0], {0}).stddev) == values(stddev(x[0].tensor(), {0})));
  for (int dim : {0, -1}) {
    for (bool reverse : {false, true}) {
      check_twice(
          [&](const Inputs& in) { return square(cumsum(in[0], dim, {.reverse = reverse})); }, x);
    }
  }
  CHECK(values(cumsum(x[0], 1)) == values(cumsum(x[0].tensor(), 1)));
}

TEST_CASE("max, min, sort and topk along a dim") {
  for (const Shape& shape : {Shape{3, 4, 2}, Shape{5, 1}}) {
    for (int dim : {0, 1, -1}) {
      const Inputs x = {leaf(shape, -2, 2)};
      for (bool keep_dims : {false, true}) {
        CHECK(values(max(x[0], dim, keep_dims).values) ==
              values(max(x[0].tensor(), dim, keep_dims).values));
        CHECK(values(min(x[0], dim, keep_dims).indices) ==
              values(min(x[0].tensor(), dim, keep_dims).indices));
        check_twice([&](const Inputs& in) { return square(max(in[0], dim, keep_dims).values); }, x);
        check_twice([&](const Inputs& in) { return square(min(in[0], dim, keep_dims).values); }, x);
      }
      for (bool descending : {false, true}) {
        check_twice(
            [&](const Inputs& in) {
              return square(sort(in[0], dim, {.descending = descending}).values);
            },
            x);
        check_twice(
            [&](const Inputs& in) {
              return square(topk(in[0], 1, dim, {.largest = descending}).values);
            },
            x);
      }
      CHECK(values(sort(x[0], dim).indices) == values(argsort(x[0].tensor(), dim)));
    }
  }
  // Only the first of equals is chosen.
  CHECK(gradient_of([](const Variable& x) { return max(x, 0).values; }, {1, 4, 4}) ==
        std::vector<double>{0, 1, 0});
  check_twice([](const Inputs& in) { return max(in[0]); }, {leaf({3, 2})});
}

TEST_CASE("16-bit reductions have gradients of their dtype") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Variable x(cast(irregular({3, 5}), dtype), true);
    for (const Reduction& op : reductions()) {
      INFO(op.name << " " << dtype_name(dtype));
      const Variable y = op.differentiable(x, {1}, false);
      const Variable total = sum(y);
      const Variable dx = grad({&total, 1}, {&x, 1})[0];
      CHECK(dx.dtype() == dtype);
      CHECK(dx.shape() == x.shape());
    }
  }
}

}  // namespace
}  // namespace tessera::testing
