// Initial values that are scaled by the shape of the whole parameter: their bounds and deviations,
// and that no sharding changes them.

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/nn/init.h"
#include "tessera/nn/parameter.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::init::FanMode;
using nn::init::Nonlinearity;
using testing::FakeOwner;
using testing::thrown;
using testing::values;

std::vector<double> initial(const Shape& shape, const nn::Initializer& init,
                            DType dtype = DType::kF64) {
  Parameter p({.shape = shape, .dtype = dtype, .init = init});
  p.materialize(default_device());
  p.reset({.value = 5});
  return values(p.local().tensor());
}

struct Spread {
  double deviation = 0, largest = 0;
};
Spread spread(const std::vector<double>& values) {
  Spread out;
  for (double v : values) {
    out.deviation += v * v / double(values.size());
    out.largest = std::max(out.largest, std::abs(v));
  }
  out.deviation = std::sqrt(out.deviation);
  return out;
}

TEST_CASE("gains are those of the nonlinearities") {
  CHECK(nn::init::calculate_gain(Nonlinearity::kLinear) == 1);
  CHECK(nn::init::calculate_gain(Nonlinearity::kSigmoid) == 1);
  CHECK(nn::init::calculate_gain(Nonlinearity::kTanh) == Approx(5.0 / 3));
  CHECK(nn::init::calculate_gain(Nonlinearity::kRelu) == Approx(std::sqrt(2.0)));
  CHECK(nn::init::calculate_gain(Nonlinearity::kLeakyRelu) == Approx(std::sqrt(2 / (1 + 0.0001))));
  CHECK(nn::init::calculate_gain(Nonlinearity::kLeakyRelu, std::sqrt(5.0)) ==
        Approx(1 / std::sqrt(3.0)));
  CHECK(nn::init::calculate_gain(Nonlinearity::kSelu) == 0.75);
}

TEST_CASE("kaiming and xavier are scaled by the fans") {
  const Shape shape{60, 20, 3, 2};  // fan_in 120, fan_out 360
  struct Case {
    nn::Initializer init;
    double deviation;
    bool uniform;
  };
  const nn::init::KaimingOptions out_relu{.mode = FanMode::kFanOut,
                                          .nonlinearity = Nonlinearity::kRelu};
  const nn::init::KaimingOptions linear{.negative_slope = std::sqrt(5.0)};
  const std::vector<Case> cases{
      {nn::init::kaiming_uniform(), std::sqrt(2.0 / 120), true},
      {nn::init::kaiming_uniform(linear), 1 / std::sqrt(3.0 * 120), true},
      {nn::init::kaiming_uniform(out_relu), std::sqrt(2.0 / 360), true},
      {nn::init::kaiming_normal(), std::sqrt(2.0 / 120), false},
      {nn::init::kaiming_normal(out_relu), std::sqrt(2.0 / 360), false},
      {nn::init::xavier_uniform(), std::sqrt(2.0 / 480), true},
      {nn::init::xavier_uniform(3), 3 * std::sqrt(2.0 / 480), true},
      {nn::init::xavier_normal(0.5), 0.5 * std::sqrt(2.0 / 480), false},
  };
  for (const Case& c : cases) {
    const Spread s = spread(initial(shape, c.init));
    CHECK(s.deviation == Approx(c.deviation).epsilon(0.03));
    if (c.uniform) {
      CHECK(s.largest <= std::sqrt(3.0) * c.deviation);
      CHECK(s.largest > 0.99 * std::sqrt(3.0) * c.deviation);
    } else {
      CHECK(s.largest > 3 * c.deviation);
    }
  }
}

TEST_CASE("trunc_normal stays within its bounds") {
  const Spread standard = spread(initial({100, 70}, nn::init::trunc_normal()));
  CHECK(standard.largest <= 2);
  CHECK(standard.largest > 1.9);
  CHECK(standard.deviation == Approx(0.8796).epsilon(0.03));
  const Spread narrow = spread(
      initial({100, 70}, nn::init::trunc_normal({.stddev = 0.02, .low = -0.01, .high = 0.01})));
  CHECK(narrow.largest <= 0.01);
}

// out[i][j] = sum over k of a[i][k] a[j][k], rows or columns of a [rows, columns].
double worst_product(const std::vector<double>& a, std::size_t rows, std::size_t columns) {
  const bool by_rows = rows <= columns;
  const std::size_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < length; ++k)
        sum += by_rows ? a[i * columns + k] * a[j * columns + k]
                       : a[k * columns + i] * a[k * columns + j];
      worst = std::max(worst, std::abs(sum - (i == j)));
    }
  }
  return worst;
}

TEST_CASE("orthogonal makes rows, or columns, orthonormal") {
  // 150 rows are three blocks.
  for (const auto& [rows, columns] :
       {std::pair(1, 1), std::pair(1, 7), std::pair(5, 5), std::pair(9, 4), std::pair(150, 150),
        std::pair(70, 131), std::pair(131, 70)}) {
    INFO(rows << " x " << columns);
    const std::vector<double> a = initial({rows, columns}, nn::init::orthogonal());
    CHECK(worst_product(a, std::size_t(rows), std::size_t(columns)) < 1e-12);
  }
  const std::vector<double> kernel = initial({4, 3, 2, 5}, nn::init::orthogonal());
  CHECK(worst_product(kernel, 4, 30) < 1e-13);
  const std::vector<double> twice = initial({4, 3, 2, 5}, nn::init::orthogonal(2));
  for (std::size_t i = 0; i < kernel.size(); ++i) CHECK(twice[i] == 2 * kernel[i]);
  const std::vector<double> single = initial({4, 3, 2, 5}, nn::init::orthogonal(), DType::kF32);
  for (std::size_t i = 0; i < kernel.size(); ++i) CHECK(single[i] == float(kernel[i]));
  CHECK(initial({0, 3}, nn::init::orthogonal()).empty());
}

TEST_CASE("orthogonal: signs and directions are even") {
  double sum = 0, squares = 0;
  for (std::uint64_t key = 0; key < 400; ++key) {
    Parameter p({.shape = {2, 2}, .dtype = DType::kF64, .init = nn::init::orthogonal()});
    p.materialize(default_device());
    p.reset({.value = key});
    const std::vector<double> a = values(p.local().tensor());
    const double determinant = a[0] * a[3] - a[1] * a[2];
    sum += a[0] / 400 + determinant / 400;
    squares += a[0] * a[0] / 400;
  }
  CHECK(std::abs(sum) < 0.2);
  CHECK(squares == Approx(0.5).epsilon(0.1));
}

TEST_CASE("eye has ones on the diagonal") {
  CHECK(initial({2, 3}, nn::init::eye()) == std::vector<double>{1, 0, 0, 0, 1, 0});
  CHECK(initial({3, 2}, nn::init::eye(), DType::kF32) == std::vector<double>{1, 0, 0, 1, 0, 0});
}

TEST_CASE("a shard of any of them holds the rows of the whole") {
  const Shape shape{7, 4, 3};
  for (const nn::Initializer& init :
       {nn::init::kaiming_uniform(), nn::init::kaiming_normal(), nn::init::xavier_uniform(),
        nn::init::xavier_normal(), nn::init::trunc_normal(), nn::init::orthogonal()}) {
    const std::vector<double> whole = initial(shape, init);
    for (std::int64_t first : {0, 3, 5, 7}) {
      const std::int64_t rows = std::min<std::int64_t>(3, 7 - first);
      Parameter part({.shape = shape, .dtype = DType::kF64, .init = init});
      part.shard(testing::row_sharding(shape, first, rows, 4), std::make_shared<FakeOwner>("g"));
      part.materialize(default_device());
      part.reset({.value = 5});
      const auto begin = whole.begin() + 12 * first;
      CHECK(values(part.local().tensor()) == std::vector<double>(begin, begin + 12 * rows));
    }
  }
  const std::vector<double> whole = initial({5, 4}, nn::init::eye());
  // Rows 2 and 3, columns 1 to 3, as a box of its own.
  const Tensor block = Tensor::empty({2, 3}, {.dtype = DType::kF64});
  nn::init::eye()(block, {}, {.global = {5, 4}, .offset = {2, 1}});
  CHECK(values(block) == std::vector<double>{0, 1, 0, 0, 0, 1});
}

TEST_CASE("they are planned on the null device") {
  for (const nn::Initializer& init : {nn::init::orthogonal(), nn::init::eye()}) {
    Parameter p({.shape = {5, 3}, .init = init});
    p.materialize(kNull);
    p.reset({.value = 1});
    CHECK(p.local().device() == kNull);
  }
}

TEST_CASE("they name what does not fit") {
  CHECK(thrown<InvalidArgument>([] { initial({3}, nn::init::kaiming_uniform()); }) ==
        "[nn.init.kaiming_uniform] a parameter of shape [3] has no fan; it needs at least 2 dims");
  CHECK(thrown<InvalidArgument>([] { initial({3}, nn::init::orthogonal()); }) ==
        "[nn.init.orthogonal] a parameter of shape [3] has no fan; it needs at least 2 dims");
  CHECK(thrown<InvalidArgument>([] {
          initial({3, 1, 2}, nn::init::eye());
        }) == "[nn.init.eye] needs a parameter of 2 dims, got shape [3, 1, 2]");
  CHECK(thrown<InvalidArgument>([] { nn::init::xavier_uniform(-1); }) ==
        "[nn.init.xavier_uniform] gain is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { nn::init::xavier_normal(-1); }) ==
        "[nn.init.xavier_normal] gain is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { nn::init::trunc_normal({.low = 2, .high = 1}); }) ==
        "[nn.init.trunc_normal] expected low < high and stddev > 0, got low = 2, high = 1, stddev "
        "= 1");
}

}  // namespace
}  // namespace tessera
