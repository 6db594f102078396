// Products made of matrix products, and distances between rows, against plain loops.
#include "tessera/tensor/ops/products.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/ops/similarity.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera::testing {
namespace {

using naive::Array;
using naive::Index;

constexpr double kInf = std::numeric_limits<double>::infinity();

// a b of two matrices.
Array product(const Array& a, const Array& b) {
  Array out = naive::filled({a.shape[0], b.shape[1]}, 0);
  naive::for_each_index({a.shape[0], a.shape[1], b.shape[1]}, [&](const Index& i) {
    out.at({i[0], i[2]}) += a.at({i[0], i[1]}) * b.at({i[1], i[2]});
  });
  return out;
}

Array matrix(const Tensor& x, std::int64_t i) { return naive::array_of(x.select(0, i)); }

TEST_CASE("baddbmm and addbmm: batches, broadcast, factors, beta 0") {
  for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{4, 5, 2}, {1, 7, 1}, {3, 0, 2}}) {
    const Tensor a = spread_tensor<double>({3, m, k}), b = spread_tensor<double>({3, k, n}, -1, 3);
    for (const Shape& shape : {Shape{}, Shape{n}, Shape{m, n}}) {
      const Tensor c = spread_tensor<double>(shape, 1, 2);
      const Array wide = naive::array_of(clone(c.expand({3, m, n})));
      Array batches = naive::filled({3, m, n}, 0), total = naive::filled({m, n}, 0);
      for (std::int64_t s = 0; s < 3; ++s) {
        const Array one = product(matrix(a, s), matrix(b, s));
        naive::for_each_index({m, n}, [&](const Index& i) {
          batches.at({s, i[0], i[1]}) = 0.5 * one.at(i) - 2 * wide.at({s, i[0], i[1]});
          total.at(i) += 0.5 * one.at(i) - (s == 0 ? 2 : 0) * wide.at({s, i[0], i[1]});
        });
      }
      const AddmmOptions options{.alpha = 0.5, .beta = -2};
      for (const Tensor& x : layouts(a)) {
        CHECK(naive::is_close(baddbmm(c, x, b, options), batches, 1e-12, 1e-13));
        CHECK(naive::is_close(addbmm(c, x, b, options), total, 1e-12, 1e-13));
      }
    }
    const Tensor nothing = full({m, n}, NAN, a.options());
    CHECK(all_equal(baddbmm(nothing, a, b, {.beta = 0}), bmm(a, b)));
    CHECK(!any(isnan(addbmm(nothing, a, b, {.beta = 0}))).item<bool>());
  }
  CHECK(addbmm(ones({2}), zeros({0, 3, 4}), zeros({0, 4, 2})).to_vector<float>() ==
        std::vector<float>(6, 1));
  const Tensor b = cast(spread_tensor<double>({2, 5, 3}), DType::kBF16);
  check_dtypes(spread_tensor<double>({2, 4, 5}), [&](const Tensor& x) {
    return baddbmm(ones({3}, x.options()), x, cast(b, x.dtype()), {.alpha = 2});
  });
}

TEST_CASE("addmv, addr, vdot") {
  const Tensor a = spread_tensor<double>({4, 5}), x = spread_tensor<double>({5}, 0, 1),
               y = spread_tensor<double>({4}, 1, 2);
  const Array matrix = naive::array_of(a);
  const std::vector<double> v = x.to_vector<double>(), w = y.to_vector<double>();
  for (const Tensor& c : {y, y.narrow(0, 1, 1), y.select(0, 2)}) {
    const std::vector<double> added = clone(c.expand({4})).to_vector<double>();
    Array expected = naive::filled({4}, 0);
    naive::for_each_index({4, 5}, [&](const Index& i) {
      expected.at({i[0]}) += 3 * matrix.at(i) * v[static_cast<std::size_t>(i[1])];
    });
    for (std::size_t i = 0; i < 4; ++i) expected.values[i] += 0.5 * added[i];
    CHECK(naive::is_close(addmv(c, a, x, {.alpha = 3, .beta = 0.5}), expected, 1e-12, 1e-13));
  }
  Array outer = matrix;
  naive::for_each_index({4, 5}, [&](const Index& i) {
    outer.at(i) =
        3 * w[static_cast<std::size_t>(i[0])] * v[static_cast<std::size_t>(i[1])] - matrix.at(i);
  });
  CHECK(naive::is_close(addr(a, y, x, {.alpha = 3, .beta = -1}), outer, 1e-12, 1e-13));
  CHECK(all_equal(addr(full({}, NAN, a.options()), y, x, {.beta = 0}), tessera::outer(y, x)));
  double total = 0;
  for (std::size_t i = 0; i < 4; ++i) total += w[i] * v[i];
  CHECK(vdot(y, x.narrow(0, 0, 4)).item<double>() == Approx(total));
  CHECK(addmv(ones({}), zeros({0, 3}), zeros({3})).shape() == Shape{0});
}

TEST_CASE("kron: each element times the other operand") {
  for (const auto& [left, right] : {std::pair<Shape, Shape>{{2, 3}, {4, 5}},
                                    {{3}, {4}},
                                    {{2, 3}, {4}},
                                    {{2}, {3, 1, 2}},
                                    {{}, {2, 3}},
                                    {{0, 2}, {3, 3}},
                                    {{2, 1, 2, 1}, {1, 3, 1, 2}}}) {
    const Tensor a = spread_tensor<double>(left), b = spread_tensor<double>(right, 0, 3);
    Array x = naive::array_of(a), y = naive::array_of(b);
    while (x.shape.size() < y.shape.size()) x.shape.insert(x.shape.begin(), 1);
    while (y.shape.size() < x.shape.size()) y.shape.insert(y.shape.begin(), 1);
    Index shape;
    for (std::size_t d = 0; d < x.shape.size(); ++d) shape.push_back(x.shape[d] * y.shape[d]);
    Array expected = naive::filled(shape, 0);
    naive::for_each_index(shape, [&](const Index& at) {
      Index i = at, j = at;
      for (std::size_t d = 0; d < at.size(); ++d) i[d] /= y.shape[d], j[d] %= y.shape[d];
      expected.at(at) = x.at(i) * y.at(j);
    });
    for (const Tensor& layout : layouts(a)) CHECK(naive::is_equal(kron(layout, b), expected));
  }
  CHECK(kron(ones({2}, {.dtype = DType::kI32}), ones({2}, {.dtype = DType::kI64})).dtype() ==
        DType::kI64);
}

TEST_CASE("cross: the vector product over any dim") {
  const Tensor a = spread_tensor<double>({2, 3, 4}), b = spread_tensor<double>({1, 3, 4}, 0, 3);
  const Array x = naive::array_of(a), y = naive::array_of(b);
  Array expected = x;
  naive::for_each_index(x.shape, [&](const Index& i) {
    const std::int64_t p = (i[1] + 1) % 3, q = (i[1] + 2) % 3;
    expected.at(i) =
        x.at({i[0], p, i[2]}) * y.at({0, q, i[2]}) - x.at({i[0], q, i[2]}) * y.at({0, p, i[2]});
  });
  CHECK(naive::is_close(cross(a, b, 1), expected, 1e-13, 1e-14));
  CHECK(naive::is_close(cross(a.transpose(1, 2), b.transpose(1, 2)).transpose(1, 2), expected,
                        1e-13, 1e-14));
  const Tensor i = Tensor::from_vector<std::int64_t>({1, 0, 0}, {3}),
               j = Tensor::from_vector<std::int64_t>({0, 1, 0}, {3});
  CHECK(cross(i, j).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0, 1});
  CHECK(cross(zeros({0, 3}), ones({1, 3})).shape() == Shape{0, 3});
  check_dtypes(spread_tensor<double>({2, 3}),
               [](const Tensor& v) { return cross(v, mul(flip(v, {1}), 2)); });
}

TEST_CASE("matrix_power and multi_dot: products of several matrices") {
  const Tensor x = spread_tensor<double>({2, 3, 3}, -1, 1);
  for (std::int64_t power : {0, 1, 2, 3, 5, 8}) {
    const Tensor y = matrix_power(x, power);
    for (std::int64_t s = 0; s < 2; ++s) {
      Array expected = naive::array_of(eye(3, 3, {.dtype = DType::kF64}));
      for (std::int64_t i = 0; i < power; ++i) expected = product(expected, matrix(x, s));
      CHECK(naive::is_close(y.select(0, s), expected, 1e-12, 1e-13));
    }
  }
  CHECK(all_equal(matrix_power(full({2, 2}, NAN), 0), eye(2)));
  CHECK(matrix_power(zeros({2, 0, 0}), 3).shape() == Shape{2, 0, 0});
  CHECK_FALSE(matrix_power(x, 1).storage() == x.storage());
  const std::int64_t extents[] = {3, 20, 2, 15, 1, 4};
  std::vector<Tensor> chain;
  for (std::size_t i = 0; i < 5; ++i)
    chain.push_back(spread_tensor<double>({extents[i], extents[i + 1]}, -1, 1));
  Array all = naive::array_of(chain[0]);
  for (std::size_t i = 1; i < 5; ++i) all = product(all, naive::array_of(chain[i]));
  CHECK(naive::is_close(multi_dot(chain), all, 1e-12, 1e-13));
  const Tensor row = spread_tensor<double>({3}), column = spread_tensor<double>({4});
  const Array r = naive::array_of(row.unsqueeze(0)), c = naive::array_of(column.unsqueeze(1));
  std::vector<Tensor> ends = chain;
  ends.insert(ends.begin(), row);
  Array left = product(r, all);
  left.shape = {4};
  CHECK(naive::is_close(multi_dot(ends), left, 1e-12, 1e-13));
  ends.push_back(column);
  Array number = product(product(r, all), c);
  number.shape = {};
  CHECK(naive::is_close(multi_dot(ends), number, 1e-12, 1e-13));
  CHECK(multi_dot({row, row}).shape() == Shape{});
}

TEST_CASE("cov and corrcoef") {
  const Tensor t = spread_tensor<double>({3, 7});
  const Array x = naive::array_of(t);
  const auto covariance = [&](std::int64_t i, std::int64_t j, double correction) {
    double mean_i = 0, mean_j = 0, total = 0;
    for (std::int64_t k = 0; k < 7; ++k) mean_i += x.at({i, k}) / 7, mean_j += x.at({j, k}) / 7;
    for (std::int64_t k = 0; k < 7; ++k) total += (x.at({i, k}) - mean_i) * (x.at({j, k}) - mean_j);
    return total / (7 - correction);
  };
  for (double correction : {0.0, 1.0, 2.5}) {
    Array expected = naive::filled({3, 3}, 0);
    naive::for_each_index(
        {3, 3}, [&](const Index& i) { expected.at(i) = covariance(i[0], i[1], correction); });
    for (const Tensor& layout : layouts(t))
      CHECK(naive::is_close(cov(layout, correction), expected, 1e-12, 1e-13));
  }
  Array coefficients = naive::filled({3, 3}, 0);
  naive::for_each_index({3, 3}, [&](const Index& i) {
    coefficients.at(i) = covariance(i[0], i[1], 1) /
                         std::sqrt(covariance(i[0], i[0], 1) * covariance(i[1], i[1], 1));
  });
  CHECK(naive::is_close(corrcoef(t), coefficients, 1e-12, 1e-13));
  CHECK(cov(t.select(0, 1)).shape() == Shape{});
  CHECK(cov(t.select(0, 1)).item<double>() == Approx(covariance(1, 1, 1)));
  CHECK(corrcoef(t.select(0, 1)).item<double>() == 1);
  CHECK(std::isnan(corrcoef(ones({2, 3})).to_vector<float>()[0]));
  CHECK(std::isnan(cov(ones({}, {.dtype = DType::kF64})).item<double>()));
  for (double r : corrcoef(repeat(t.narrow(0, 0, 1), {4, 1})).to_vector<double>()) CHECK(r <= 1);
  check_dtypes(t, [](const Tensor& v) { return cov(v); });
}

TEST_CASE("cdist: distances between rows, in batches, for any p") {
  const Tensor a = spread_tensor<double>({2, 1, 4, 3}), b = spread_tensor<double>({5, 2, 3}, 0, 3);
  const Array x = naive::array_of(a), y = naive::array_of(b);
  for (double p : {0.0, 0.5, 1.0, 2.0, 3.0, kInf}) {
    Array expected = naive::filled({2, 5, 4, 2}, 0);
    naive::for_each_index(expected.shape, [&](const Index& i) {
      double total = 0;
      for (std::int64_t k = 0; k < 3; ++k) {
        const double d = std::abs(x.at({i[0], 0, i[2], k}) - y.at({i[1], i[3], k}));
        total = p == kInf ? std::max(total, d) : total + (p == 0 ? (d != 0) : std::pow(d, p));
      }
      expected.at(i) = p == kInf || p == 0 ? total : std::pow(total, 1 / p);
    });
    for (const Tensor& layout : layouts(a))
      CHECK(naive::is_close(cdist(layout, b, p), expected, 1e-12, 1e-13));
    CHECK(cdist(zeros({2, 0}), zeros({3, 0}), p).to_vector<float>() == std::vector<float>(6, 0));
    CHECK(cdist(zeros({0, 2}), zeros({3, 2}), p).shape() == Shape{0, 3});
  }
  // Near points far from the origin: |a|^2 - 2 a b + |b|^2 would lose their distance.
  const Tensor far = Tensor::from_vector<float>({10000, 10000.5F}, {2, 1});
  CHECK(cdist(far, far).to_vector<float>() == std::vector<float>{0, 0.5F, 0.5F, 0});
  check_dtypes(spread_tensor<double>({4, 3}),
               [](const Tensor& v) { return cdist(v, mul(v.narrow(0, 1, 2), 2)); });
}

TEST_CASE("sums with products: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor a = zeros({2, 3}), v = zeros({3}), batch = zeros({4, 2, 3});
  CHECK(text([&] { baddbmm(v, batch, batch); }) ==
        "[baddbmm] [4, 2, 3] and [4, 2, 3] do not multiply: inner dims 3 and 2 differ; transpose "
        "one?");
  CHECK(text([&] {
          baddbmm(v, a, zeros({3, 2}));
        }) == "[baddbmm] needs [b, m, k] and [b, k, n], got [2, 3] and [3, 2]; matmul broadcasts");
  CHECK(text([&] {
          baddbmm(zeros({1, 4, 1, 1}), batch, zeros({4, 3, 2}));
        }) ==
        "[baddbmm] [1, 4, 1, 1] does not broadcast to the product's [4, 2, 2]; it may have fewer "
        "dims, or extents of 1");
  CHECK(text([&] { addbmm(v, a, batch); }) ==
        "[addbmm] needs factors of 3 and 3 dims, got [2, 3] and [4, 2, 3]");
  CHECK(text([&] { addbmm(v, batch, batch); }) ==
        "[addbmm] [4, 2, 3] and [4, 2, 3] do not multiply; their inner dims must be equal");
  CHECK(text([&] { addmv(v, a, zeros({2})); }) ==
        "[addmv] [2, 3] and [2] do not multiply; their inner dims must be equal");
  CHECK(
      text([&] {
        addmv(zeros({1, 2}), a, v);
      }) ==
      "[addmv] [1, 2] does not broadcast to the product's [2]; it may have fewer dims, or extents "
      "of 1");
  CHECK(text([&] { addr(v, v, a); }) == "[addr] needs factors of 1 and 1 dims, got [3] and [2, 3]");
  CHECK(text([&] { vdot(v, zeros({2})); }) ==
        "[vdot] [3] and [2] do not multiply; their inner dims must be equal");
}

TEST_CASE("products of several tensors, and distances: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor a = zeros({2, 3}), v = zeros({3}), batch = zeros({4, 2, 3});
  CHECK(text([&] {
          kron(a, zeros({1, 1, 1, 1, 1}));
        }) == "[kron] operands of shapes [2, 3] and [1, 1, 1, 1, 1] have more than 4 dims");
  CHECK(text([&] { cross(a, v); }) ==
        "[cross] [2, 3] and [3] have different numbers of dims; unsqueeze one");
  CHECK(text([&] { cross(a, a, 0); }) == "[cross] dim 0 of [2, 3] and [2, 3] must have extent 3");
  CHECK(text([&] {
          cross(ones({3}, {.dtype = DType::kBool}), ones({3}, {.dtype = DType::kBool}));
        }) == "[cross] operands are bool; cast one of them");
  CHECK(text([&] { matrix_power(a, 2); }) ==
        "[matrix_power] needs square matrices [..., n, n], got [2, 3]");
  CHECK(text([&] {
          matrix_power(zeros({2, 2}), -1);
        }) == "[matrix_power] the power is -1; it must be at least 0");
  CHECK(text([&] { multi_dot({a}); }) == "[multi_dot] got 1 matrices; pass at least two");
  CHECK(text([&] {
          multi_dot({a, v, v});
        }) ==
        "[multi_dot] matrix 1 has shape [3]; all need 2 dims, the first and the last may have 1");
  CHECK(text([&] {
          multi_dot({a, a});
        }) ==
        "[multi_dot] matrices 0 and 1 of shapes [2, 3] and [2, 3] do not multiply; their inner "
        "dims must be equal");
  CHECK(text([&] { cov(batch); }) == "[cov] needs [variables, observations], got [4, 2, 3]");
  CHECK(text([&] { corrcoef(batch); }) ==
        "[corrcoef] needs [variables, observations], got [4, 2, 3]");
  CHECK(text([&] { cdist(a, v); }) ==
        "[cdist] needs rows [..., rows, features] of 2 to 7 dims, got [2, 3] and [3]");
  CHECK(text([&] {
          cdist(a, zeros({2, 4}));
        }) == "[cdist] [2, 3] has 3 features, [2, 4] has 4; they must be equal");
  CHECK(text([&] { cdist(a, a, -1); }) == "[cdist] p is -1; it must be at least 0");
}

}  // namespace
}  // namespace tessera::testing
