// Running results, medians, quantiles and other chosen elements, dtypes and 0-d operands: values
// against the tensor operation, derivatives against differences and PyTorch's.
#include "tessera/autograd/ops/scan.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

Variable of(const std::vector<double>& x) {
  return Variable(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), true);
}

std::vector<double> gradient_of(const std::function<Variable(const Variable&)>& function,
                                const std::vector<double>& at) {
  const Variable x = of(at);
  backward(sum(function(x)));
  return values(x.grad());
}

TEST_CASE("cumprod, logcumsumexp, cummax and cummin: derivatives along any dim") {
  for (const Shape& shape : {Shape{3, 4, 2}, Shape{5, 1}, Shape{2, 0}, Shape{1}}) {
    for (int dim = -1; dim < shape.ndim(); ++dim) {
      const Inputs x = {leaf(shape, -2, 2)};
      for (bool reverse : {false, true}) {
        check_twice(
            [&](const Inputs& in) { return square(cumprod(in[0], dim, {.reverse = reverse})); }, x);
        check_twice(
            [&](const Inputs& in) {
              return square(logcumsumexp(in[0], dim, {.reverse = reverse}));
            },
            x);
        CHECK(values(cumprod(x[0], dim, {.reverse = reverse})) ==
              values(cumprod(x[0].tensor(), dim, {.reverse = reverse})));
      }
      check_twice([&](const Inputs& in) { return square(cummax(in[0], dim).values); }, x);
      check_twice([&](const Inputs& in) { return square(cummin(in[0], dim).values); }, x);
      CHECK(values(cummax(x[0], dim).indices) == values(cummax(x[0].tensor(), dim).indices));
    }
  }
  check_twice([](const Inputs& in) { return cumprod(transpose(in[0], 0, 1), 0); }, {leaf({3, 4})});
}

TEST_CASE("cumprod: zeros among the factors") {
  const auto product = [](const Variable& x) { return cumprod(x, 0); };
  CHECK(gradient_of(product, {2, 0, 3, 5}) == std::vector<double>{1, 2 + 6 + 30, 0, 0});
  CHECK(gradient_of(product, {0, 0, 3}) == std::vector<double>{1, 0, 0});
  CHECK(gradient_of(product, {2, 5, 3}) == std::vector<double>{1 + 5 + 15, 2 + 6, 10});
  for (const auto& x :
       std::vector<std::vector<double>>{{2, 0, 3, 4}, {0, 0, 3}, {1, 2, 0, 3, 0, 4}, {0, 0, 0}}) {
    for (bool reverse : {false, true})
      check_twice([&](const Inputs& in) { return cumprod(in[0], 0, {.reverse = reverse}); },
                  {of(x)});
  }
}

TEST_CASE("logcumsumexp: large numbers, infinities, gradients of both signs") {
  const auto running = [](const Variable& x) { return logcumsumexp(x, 0); };
  const auto g = gradient_of(running, {-kInf, -kInf, 1, 2});
  CHECK(g[0] == 0);
  CHECK(g[1] == 0);
  CHECK(g[2] == Approx(1.2689414213699952));
  CHECK(g[3] == Approx(0.7310585786300048));
  const auto large = gradient_of(running, {1000, -1000, 1000});
  CHECK(large[0] == Approx(2.5));
  CHECK(large[1] == 0);
  CHECK(large[2] == Approx(0.5));
  const Variable weights(Tensor::from_vector<double>({1, -2, 0, 3}, {4}));
  check_twice([&](const Inputs& in) { return mul(logcumsumexp(in[0], 0), weights); },
              {of({-3, 40, 2, 41})});
}

TEST_CASE("cummax, median, kthvalue and mode: where the gradient goes") {
  CHECK(gradient_of([](const Variable& x) { return cummax(x, 0).values; }, {1, 3, 3, 2}) ==
        std::vector<double>{1, 1, 2, 0});
  CHECK(gradient_of([](const Variable& x) { return cummin(x, 0).values; }, {3, 1, 1, 2}) ==
        std::vector<double>{1, 1, 2, 0});
  CHECK(gradient_of([](const Variable& x) { return median(x); }, {1, 1, 3}) ==
        std::vector<double>{0.5, 0.5, 0});
  CHECK(gradient_of([](const Variable& x) { return nanmedian(x); }, {1, kNan, 1, 3}) ==
        std::vector<double>{0.5, 0, 0.5, 0});
  CHECK(gradient_of([](const Variable& x) { return median(x); }, {1, kNan, 1, kNan}) ==
        std::vector<double>{0, 0.5, 0, 0.5});
  CHECK(gradient_of([](const Variable& x) { return median(x, 0).values; }, {1, 1, 3}) ==
        std::vector<double>{0, 1, 0});
  CHECK(gradient_of([](const Variable& x) { return mode(x, 0).values; }, {4, 1, 4, 3}) ==
        std::vector<double>{0, 0, 1, 0});
  CHECK(gradient_of([](const Variable& x) { return aminmax(x).min; }, {1, 1, 3}) ==
        std::vector<double>{0.5, 0.5, 0});
  CHECK(gradient_of([](const Variable& x) { return aminmax(x, {0}).max; }, {1, 3, 3}) ==
        std::vector<double>{0, 0.5, 0.5});
  for (const Shape& shape : {Shape{3, 4, 2}, Shape{5, 1}}) {
    const Inputs x = {leaf(shape, -2, 2)};
    for (int dim : {0, 1, -1}) {
      for (bool keep : {false, true}) {
        check_twice([&](const Inputs& in) { return square(median(in[0], dim, keep).values); }, x);
        check_twice([&](const Inputs& in) { return square(nanmedian(in[0], dim, keep).values); },
                    x);
        check_twice([&](const Inputs& in) { return square(kthvalue(in[0], 1, dim, keep).values); },
                    x);
        check_twice([&](const Inputs& in) { return square(mode(in[0], dim, keep).values); }, x);
        check_twice(
            [&](const Inputs& in) {
              return square(sub(aminmax(in[0], {dim}, keep).max, aminmax(in[0], {dim}, keep).min));
            },
            x);
      }
    }
    check_twice([](const Inputs& in) { return square(median(in[0])); }, x);
    check_twice([](const Inputs& in) { return square(nanmedian(in[0])); }, x);
  }
}

TEST_CASE("quantile: derivatives for every interpolation") {
  const Inputs x = {leaf({3, 4, 2}, -2, 2)};
  for (auto how : {QuantileInterpolation::kLinear, QuantileInterpolation::kLower,
                   QuantileInterpolation::kHigher, QuantileInterpolation::kMidpoint,
                   QuantileInterpolation::kNearest}) {
    for (bool keep : {false, true}) {
      for (std::optional<int> dim : {std::optional<int>(), std::optional<int>(1)}) {
        const QuantileOptions options{.dim = dim, .keep_dims = keep, .interpolation = how};
        check_twice([&](const Inputs& in) { return square(quantile(in[0], 0.3, options)); }, x);
        check_twice(
            [&](const Inputs& in) {
              return square(quantile(in[0], std::vector<double>{0, 0.6, 1}, options));
            },
            x);
        CHECK(values(quantile(x[0], 0.3, options)) ==
              values(quantile(x[0].tensor(), 0.3, options)));
      }
    }
  }
  const auto g = gradient_of([](const Variable& v) { return quantile(v, 0.3); }, {1, 1, 3});
  CHECK(g[0] == Approx(0.4));
  CHECK(g[1] == Approx(0.6));
  CHECK(gradient_of([](const Variable& v) { return quantile(v, 0.3); }, {1, kNan, 3}) ==
        std::vector<double>{0, 1, 0});
}

TEST_CASE("nansum and nanmean: derivatives, 0 at NaN") {
  CHECK(gradient_of([](const Variable& x) { return nansum(x); }, {1, kNan, 2}) ==
        std::vector<double>{1, 0, 1});
  CHECK(gradient_of([](const Variable& x) { return nanmean(x); }, {1, kNan, 2}) ==
        std::vector<double>{0.5, 0, 0.5});
  for (bool keep : {false, true}) {
    check_twice([&](const Inputs& in) { return square(nansum(in[0], {1}, keep)); }, {leaf({3, 4})});
    check_twice([&](const Inputs& in) { return square(nanmean(in[0], {0}, keep)); },
                {leaf({3, 4})});
  }
}

TEST_CASE("reductions and running results in another dtype, also under autocast") {
  const Variable x(cast(irregular({3, 4}, 1, 2), DType::kF32), true);
  const auto all = [&](DType dtype) {
    return std::vector<Variable>{
        sum(x, {1}, {.dtype = dtype}),  mean(x, {1}, {.keep_dims = true, .dtype = dtype}),
        prod(x, {}, {.dtype = dtype}),  softmax(x, 0, dtype),
        log_softmax(x, 1, dtype),       cumsum(x, 0, {.reverse = true, .dtype = dtype}),
        cumprod(x, 1, {.dtype = dtype})};
  };
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    std::vector<Variable> results = all(dtype);
    {
      AutocastGuard autocast(DType::kF16);
      for (const Variable& y : all(dtype)) results.push_back(y);
    }
    for (const Variable& y : results) {
      CHECK(y.dtype() == dtype);
      const Variable total = sum(y);
      CHECK(grad({&total, 1}, {&x, 1})[0].dtype() == DType::kF32);
    }
  }
  CHECK(values(sum(x, {1}, {.dtype = DType::kF64})) ==
        values(sum(cast(x.tensor(), DType::kF64), {1})));
  AutocastGuard autocast(DType::kBF16);
  CHECK(sum(cast(x, DType::kBF16), {1}, {.keep_dims = true}).dtype() == DType::kF32);
}

TEST_CASE("16-bit running results have gradients of their dtype") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Variable x(cast(irregular({3, 5}), dtype), true);
    for (const Variable& y : {cumprod(x, 1), logcumsumexp(x, 0), cummax(x, 1).values,
                              quantile(x, 0.3), median(x, 0).values, nanmean(x, {1})}) {
      CHECK(y.dtype() == dtype);
      const Variable total = sum(y);
      CHECK(grad({&total, 1}, {&x, 1})[0].dtype() == dtype);
    }
  }
}

TEST_CASE("0-d variables along dim 0") {
  using V = const Variable&;
  const Tensor zero = zeros({}, {.dtype = DType::kI64}), zero_index = zero.view({1});
  const std::vector<std::function<Variable(V, int)>> functions = {
      [](V x, int d) { return sum(x, {d}); },
      [](V x, int d) { return mean(x, {d}, true); },
      [](V x, int d) { return prod(x, {d}); },
      [](V x, int d) { return amax(x, {d}); },
      [](V x, int d) { return logsumexp(x, {d}); },
      [](V x, int d) { return norm(x, {d}); },
      [](V x, int d) { return softmax(x, d); },
      [](V x, int d) { return log_softmax(x, d); },
      [](V x, int d) { return max(x, d).values; },
      [](V x, int d) { return sort(x, d).values; },
      [](V x, int d) { return topk(x, 1, d).values; },
      [](V x, int d) { return median(x, d).values; },
      [](V x, int d) { return cumsum(x, d); },
      [](V x, int d) { return cumprod(x, d); },
      [](V x, int d) { return logcumsumexp(x, d); },
      [](V x, int d) { return cummax(x, d).values; },
      [](V x, int d) { return quantile(x, 0.5, {.dim = d}); },
      [](V x, int d) { return squeeze(x, d); },
      [](V x, int d) { return unsqueeze(x, d); },
      [](V x, int d) { return transpose(x, d, 0); },
      [](V x, int d) { return movedim(x, d, 0); },
      [](V x, int d) { return flip(x, {d}); },
      [](V x, int d) { return normalize(x, {.dim = d}); },
      [&](V x, int d) { return gather(x, d, zero); },
      [&](V x, int d) { return gather(x, d, zero_index); },
      [&](V x, int d) { return index_select(x, d, zero); },
      [&](V x, int d) { return index_select(x, d, zero_index); },
      [&](V x, int d) { return index_select(view(x, {1}), d, zero); },
      [&](V x, int d) { return scatter(x, d, zero, square(x)); },
      [&](V x, int d) { return scatter_add(x, d, zero_index, view(square(x), {1})); },
  };
  for (std::size_t i = 0; i < functions.size(); ++i) {
    for (int dim : {0, -1}) {
      INFO("function " << i << " along " << dim);
      check_twice([&](const Inputs& in) { return square(functions[i](in[0], dim)); },
                  {scalar_leaf(1.5)});
    }
  }
}

TEST_CASE("counts of variables are those of their tensors") {
  const Variable x = leaf({3, 4}, -2, 2), bounds = of({-1, 0, 1});
  CHECK(values(count_nonzero(x, {1})) == values(count_nonzero(x.tensor(), {1})));
  CHECK(values(unique(x).values) == values(unique(x.tensor()).values));
  CHECK(values(unique_consecutive(x).values) == values(x));
  CHECK(values(histc(x, {.bins = 3})) == values(histc(x.tensor(), {.bins = 3})));
  CHECK(values(searchsorted(bounds.tensor(), x)) == values(bucketize(x.tensor(), bounds.tensor())));
  CHECK(values(searchsorted(bounds, x)) == values(bucketize(x, bounds)));
  CHECK(values(argmax(x, std::nullopt)) == values(argmax(x.tensor(), std::nullopt)));
}

}  // namespace
}  // namespace tessera::testing
