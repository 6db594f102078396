// Products, extremes, any and all, logsumexp, variance, norms and running sums against plain loops,
// for every dtype, layout and choice of dims.
#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

using List = std::vector<double>;
using Fold = std::function<double(const List&)>;
using Op = std::function<Tensor(const Tensor&, const std::vector<int>&, bool)>;

double total(const List& x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum;
}
double product(const List& x) {
  double p = 1;
  for (double v : x) p *= v;
  return p;
}
double variance(const List& x, double correction) {
  const double mean = total(x) / static_cast<double>(x.size());
  double squares = 0;
  for (double v : x) squares += (v - mean) * (v - mean);
  return squares / std::max(0.0, static_cast<double>(x.size()) - correction);
}
double norm_of(const List& x, double p) {
  double sum = 0, largest = 0, smallest = kInf;
  for (double v : x) {
    sum += p == 0 ? (v != 0) : std::pow(std::abs(v), p);
    largest = std::max(largest, std::abs(v));
    smallest = std::min(smallest, std::abs(v));
  }
  if (p == 0) return sum;
  if (p == kInf) return largest;
  return p == -kInf ? smallest : std::pow(sum, 1 / p);
}

struct Case {
  const char* name;
  Op op;
  Fold fold;
  double low = -2.5, high = 3.5;
  bool floating_only = false;
  bool empty = true;  // defined for no elements
};

Op norm_op(double p) {
  return [p](const Tensor& x, const std::vector<int>& dims, bool keep) {
    return norm(x, dims, {.p = p, .keep_dims = keep});
  };
}
Fold norm_fold(double p) {
  return [p](const List& x) { return norm_of(x, p); };
}
Op var_op(double correction, bool root) {
  return [=](const Tensor& x, const std::vector<int>& dims, bool keep) {
    const VarOptions options{.correction = correction, .keep_dims = keep};
    return root ? stddev(x, dims, options) : var(x, dims, options);
  };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {.name = "prod",
       .op = [](const Tensor& x, const std::vector<int>& d, bool k) { return prod(x, d, k); },
       .fold = product,
       .low = 0.9,
       .high = 1.1},
      {.name = "amax",
       .op = [](const Tensor& x, const std::vector<int>& d, bool k) { return amax(x, d, k); },
       .fold = [](const List& x) { return *std::max_element(x.begin(), x.end()); },
       .empty = false},
      {.name = "amin",
       .op = [](const Tensor& x, const std::vector<int>& d, bool k) { return amin(x, d, k); },
       .fold = [](const List& x) { return *std::min_element(x.begin(), x.end()); },
       .empty = false},
      {.name = "any",
       .op = [](const Tensor& x, const std::vector<int>& d, bool k) { return any(x, d, k); },
       .fold =
           [](const List& x) { return x.size() > std::size_t(std::count(x.begin(), x.end(), 0)); }},
      {.name = "all",
       .op = [](const Tensor& x, const std::vector<int>& d, bool k) { return all(x, d, k); },
       .fold = [](const List& x) { return std::count(x.begin(), x.end(), 0) == 0; }},
      {.name = "logsumexp",
       .op = [](const Tensor& x, const std::vector<int>& d, bool k) { return logsumexp(x, d, k); },
       .fold =
           [](const List& x) {
             double sum = 0;
             for (double v : x) sum += std::exp(v);
             return std::log(sum);
           },
       .floating_only = true},
      {.name = "var",
       .op = var_op(1, false),
       .fold = [](const List& x) { return variance(x, 1); },
       .floating_only = true},
      {.name = "var, correction 0",
       .op = var_op(0, false),
       .fold = [](const List& x) { return variance(x, 0); },
       .floating_only = true},
      {.name = "stddev",
       .op = var_op(1, true),
       .fold = [](const List& x) { return std::sqrt(variance(x, 1)); },
       .floating_only = true},
      {.name = "norm 2", .op = norm_op(2), .fold = norm_fold(2), .floating_only = true},
      {.name = "norm 1", .op = norm_op(1), .fold = norm_fold(1), .floating_only = true},
      {.name = "norm 0", .op = norm_op(0), .fold = norm_fold(0), .floating_only = true},
      {.name = "norm 3.5", .op = norm_op(3.5), .fold = norm_fold(3.5), .floating_only = true},
      {.name = "norm inf",
       .op = norm_op(kInf),
       .fold = norm_fold(kInf),
       .floating_only = true,
       .empty = false},
      {.name = "norm -inf",
       .op = norm_op(-kInf),
       .fold = norm_fold(-kInf),
       .floating_only = true,
       .empty = false},
  };
  return list;
}

// Every layout: the value, and the same bits as the first.
void check_case(const Case& c, DType dtype, const Shape& shape, const std::vector<int>& dims) {
  const Tensor x = cast(spread_tensor<double>(shape, c.low, c.high), dtype);
  const Array plain = naive::array_of(x);
  const Tolerance tolerance =
      dtype == DType::kF64 ? Tolerance{1e-12, 1e-12} : default_tolerance(dtype);
  Tensor first;
  for (const Tensor& layout : layouts(x)) {
    for (bool keep_dims : {false, true}) {
      INFO(c.name << " " << dtype_name(dtype) << " " << shape.str() << " strides "
                  << layout.strides().str() << " " << DimList(dims).begin()[0]);
      const Tensor y = c.op(layout, dims, keep_dims);
      CHECK(naive::is_close(y, naive::reduce(plain, dims, keep_dims, c.fold), tolerance.rtol,
                            tolerance.atol));
      if (!keep_dims) {
        if (!first.defined()) first = y;
        CHECK(all_equal(y, first));
      }
    }
  }
}

TEST_CASE("reductions: every dtype, layout and choice of dims") {
  const std::vector<std::vector<int>> dims = {{}, {0}, {1}, {-1}, {0, 2}, {2, 1}, {0, 1, 2}};
  for (const Case& c : cases()) {
    for (DType dtype : kAllDTypes) {
      if (c.floating_only && !is_floating(dtype)) continue;
      for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 1, 1}, Shape{2, 67, 3}}) {
        for (const auto& some : dims) check_case(c, dtype, shape, some);
      }
      if (c.empty) check_case(c, dtype, {2, 0, 3}, {1});
      check_case(c, dtype, {2, 0, 3}, {0});
    }
  }
}

TEST_CASE("reductions: more than a block, equal bits for any layout and number of threads") {
  for (const Case& c : cases()) {
    for (const Shape& shape : {Shape{3, 1, 2100}, Shape{1100, 3, 2}})
      for (int dim : {0, 2}) check_case(c, DType::kF32, shape, {dim});
    const Tensor x = spread_tensor<float>({130, 1031}, c.low, c.high);
    for (const std::vector<int>& dims : std::vector<std::vector<int>>{{}, {0}, {1}}) {
      INFO(c.name);
      CHECK(same_for_any_threads(
          [&] { return cast(c.op(x, dims, false), DType::kF64).to_vector<double>(); }));
    }
  }
}

TEST_CASE("sums of every dtype") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = cast(spread_tensor<double>({5, 1300}, -3, 4), dtype);
    const Tensor y = sum(x, {1});
    CHECK(y.dtype() == (is_floating(dtype) ? dtype : DType::kI64));
    CHECK(naive::is_close(y, naive::reduce(naive::array_of(x), {1}, false, total),
                          default_tolerance(dtype).rtol, 1e-3));
  }
  // 16-bit sums go on where adding to a 16-bit total would no longer change it.
  CHECK(sum(ones({100'000}, {.dtype = DType::kBF16})).item(PlanValue{0}) == 99'840);
  CHECK(mean(ones({100'000}, {.dtype = DType::kF16})).item(PlanValue{0}) == 1);
  CHECK(prod(full({70}, 3, {.dtype = DType::kI32})).item<std::int64_t>() == 2293070008301402073);
}

TEST_CASE("reductions: NaN and infinities") {
  const Tensor x = Tensor::from_vector<float>(
      {1, float(kNan), 3, float(kInf), 5, -float(kInf), 0, -0.0f, 0}, {3, 3});
  for (const Tensor& layout : layouts(x)) {
    const std::vector<double> high = cast(amax(layout, {1}), DType::kF64).to_vector<double>();
    CHECK(std::isnan(high[0]));
    CHECK(high[1] == kInf);
    const std::vector<double> low = cast(amin(layout, {1}), DType::kF64).to_vector<double>();
    CHECK(std::isnan(low[0]));
    CHECK(low[1] == -kInf);
    CHECK(any(layout, {1}).to_vector<bool>() == std::vector<bool>{true, true, false});
    CHECK(all(layout, {1}).to_vector<bool>() == std::vector<bool>{true, true, false});
    CHECK(std::isnan(norm(layout, {1}, {.p = kInf}).to_vector<float>()[0]));
  }
  CHECK(std::isnan(amax(x).item<float>()));
}

TEST_CASE("logsumexp: no overflow, infinite elements, no elements") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    const auto result = [&](const std::vector<double>& x) {
      return logsumexp(cast(Tensor::from_vector(x, {std::int64_t(x.size())}), dtype))
          .item(PlanValue{0});
    };
    CHECK(result({1000, 1000}) == Approx(1000 + std::log(2)).epsilon(1e-2));
    CHECK(result({-1000, -1000}) == Approx(-1000 + std::log(2)).epsilon(1e-2));
    CHECK(result({-kInf, -kInf}) == -kInf);
    CHECK(result({-kInf, 2}) == 2);
    CHECK(result({kInf, 2, -kInf}) == kInf);
    CHECK(std::isnan(result({kNan, 2})));
    CHECK(result({}) == -kInf);
  }
}

TEST_CASE("var: accurate far from 0, of one element, and its mean") {
  std::vector<float> x;
  for (int i = 0; i < 2000; ++i) x.push_back(1e4f + (i % 2 == 0 ? 0.0078125f : -0.0078125f));
  const Tensor far = Tensor::from_vector(x, {2000});
  CHECK(var(far, {}, {.correction = 0}).item<float>() == Approx(0.0078125 * 0.0078125));
  CHECK(std::isnan(var(ones({1})).item<float>()));
  CHECK(var(ones({1}), {}, {.correction = 0}).item<float>() == 0);
  CHECK(std::isnan(var(zeros({0})).item<float>()));
  const VarMean both = var_mean(spread_tensor<float>({4, 9}), {1}, {.keep_dims = true});
  CHECK(all_equal(both.var, var(spread_tensor<float>({4, 9}), {1}, {.keep_dims = true})));
  CHECK(all_equal(both.mean, mean(spread_tensor<float>({4, 9}), {1}, true)));
  const StdMean root = std_mean(spread_tensor<float>({4, 9}), {1}, {.correction = 0});
  CHECK(all_equal(root.stddev, stddev(spread_tensor<float>({4, 9}), {1}, {.correction = 0})));
  CHECK(all_equal(root.mean, mean(spread_tensor<float>({4, 9}), {1})));
}

TEST_CASE("norm: squares that f32 could not hold") {
  CHECK(norm(full({4}, 1e30)).item<float>() == Approx(2e30));
  CHECK(norm(full({4}, 1e-30)).item<float>() == Approx(2e-30));
  CHECK(norm(zeros({0})).item<float>() == 0);
}

TEST_CASE("cumsum: every dtype and layout, both directions, any number of threads") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{3, 5, 2}, Shape{1}, Shape{2, 1100}, Shape{3, 0, 2}}) {
      const Tensor x = cast(spread_tensor<double>(shape, -3, 4), dtype);
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        for (bool reverse : {false, true}) {
          Array expected = naive::array_of(x);
          const auto d = static_cast<std::size_t>(dim);
          naive::for_each_index(expected.shape, [&](naive::Index index) {
            if (reverse) index[d] = expected.shape[d] - 1 - index[d];
            naive::Index before = index;
            before[d] += reverse ? 1 : -1;
            if (before[d] >= 0 && before[d] < expected.shape[d])
              expected.at(index) += expected.at(before);
          });
          for (const Tensor& layout : layouts(x)) {
            const Tensor y = cumsum(layout, dim, {.reverse = reverse});
            CHECK(y.dtype() == (is_floating(dtype) ? dtype : DType::kI64));
            CHECK(naive::is_close(y, expected, default_tolerance(dtype).rtol, 1e-6));
          }
        }
      }
    }
  }
  const Tensor many = spread_tensor<float>({40, 3000});
  CHECK(same_for_any_threads([&] { return cumsum(many, 1).to_vector<float>(); }));
}

TEST_CASE("statistics: errors") {
  const Tensor x = zeros({2, 0});
  CHECK(thrown<InvalidArgument>([&] { amax(x); }) ==
        "[amax] the reduced dims of shape [2, 0] have no elements; there is nothing to choose");
  CHECK(thrown<InvalidArgument>([&] { amin(x, {1}); }) ==
        "[amin] the reduced dims of shape [2, 0] have no elements; there is nothing to choose");
  CHECK(thrown<InvalidArgument>([&] { norm(x, {1}, {.p = kInf}); }) ==
        "[norm] the reduced dims of shape [2, 0] have no elements; there is nothing to choose");
  CHECK(amax(x, {0}).shape() == Shape{0});
  CHECK(thrown<InvalidArgument>([&] { norm(x, {}, {.p = kNan}); }) ==
        "[norm] p is NaN; give a number or an infinity");
  for (auto op :
       {+[](const Tensor& t) { return logsumexp(t); }, +[](const Tensor& t) { return var(t); },
        +[](const Tensor& t) { return stddev(t); },
        +[](const Tensor& t) { return var_mean(t).var; },
        +[](const Tensor& t) { return norm(t); }}) {
    CHECK_THAT(thrown<InvalidArgument>([&] { op(arange(3)); }),
               Catch::Contains("needs a floating dtype, got i64; cast it first"));
    CHECK_THAT(thrown<InvalidArgument>([&] { op(Tensor()); }), Catch::Contains("is undefined"));
  }
  for (auto op :
       {+[](const Tensor& t) { return prod(t); }, +[](const Tensor& t) { return any(t); },
        +[](const Tensor& t) { return all(t); }, +[](const Tensor& t) { return amax(t); },
        +[](const Tensor& t) { return amin(t); }, +[](const Tensor& t) { return cumsum(t, 0); }}) {
    CHECK_THAT(thrown<InvalidArgument>([&] { op(Tensor()); }), Catch::Contains("is undefined"));
  }
  CHECK_THROWS_AS(cumsum(zeros({2}), 1), InvalidArgument);
  CHECK(thrown<InvalidArgument>([] { DimList{0, 1, 2, 3, 4, 5, 6, 7, 8}; }) ==
        "[dims] 9 dims are listed; tensors have at most 8");
}

}  // namespace
}  // namespace tessera
