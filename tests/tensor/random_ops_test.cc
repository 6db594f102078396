// Random tensors: distribution, repeatability by seed and step, errors.

#include "tessera/tensor/ops/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

struct Moments {
  double mean;
  double deviation;
};

Moments moments(const Tensor& x) {
  const auto values = cast(x, DType::kF64).to_vector<double>();
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (double v : values) squares += (v - mean) * (v - mean);
  return {mean, std::sqrt(squares / n)};
}

TEST_CASE("rand, randn, normal: moments in every floating dtype") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const TensorOptions options{.dtype = dtype};
    const Moments uniform = moments(rand({100, 301}, options));
    CHECK(uniform.mean == Approx(0.5).margin(0.01));
    CHECK(uniform.deviation == Approx(std::sqrt(1.0 / 12)).margin(0.01));
    const Moments standard = moments(randn({100, 301}, options));
    CHECK(standard.mean == Approx(0).margin(0.02));
    CHECK(standard.deviation == Approx(1).margin(0.02));
    const Moments other = moments(normal(3, 0.5, {100, 301}, options));
    CHECK(other.mean == Approx(3).margin(0.02));
    CHECK(other.deviation == Approx(0.5).margin(0.01));
  }
  CHECK(rand({0, 3}).numel() == 0);
  CHECK(randn({}).ndim() == 0);
  const Tensor like = ones({2, 3}, {.dtype = DType::kBF16});
  CHECK(rand_like(like).dtype() == DType::kBF16);
  CHECK(randn_like(like).shape() == Shape{2, 3});
}

TEST_CASE("randint, randperm, bernoulli") {
  const auto dice = randint(1, 7, {6000}).to_vector<std::int64_t>();
  for (std::int64_t face = 1; face <= 6; ++face)
    CHECK(std::count(dice.begin(), dice.end(), face) == Approx(1000).margin(120));
  CHECK(randint(0, 2, {3}, {.dtype = DType::kBool}).dtype() == DType::kBool);
  auto order = randperm(97).to_vector<std::int64_t>();
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  CHECK(order == arange(97).to_vector<std::int64_t>());
  CHECK(randperm(5, {.dtype = DType::kI32}).dtype() == DType::kI32);
  CHECK(randperm(0).numel() == 0);
  const Tensor p = linspace(0, 1, 3).unsqueeze(1).expand({3, 4000});
  const auto hits = bernoulli(p).to_vector<float>();
  CHECK(std::accumulate(hits.begin(), hits.begin() + 4000, 0.0) == 0);
  CHECK(std::accumulate(hits.begin() + 4000, hits.begin() + 8000, 0.0) == Approx(2000).margin(150));
  CHECK(std::accumulate(hits.begin() + 8000, hits.end(), 0.0) == 4000);
}

// The part of the draws that each of `n` indices has.
std::vector<double> frequencies(const Tensor& draws, std::int64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n), 0);
  for (std::int64_t at : draws.to_vector<std::int64_t>())
    out[static_cast<std::size_t>(at)] += 1 / static_cast<double>(draws.numel());
  return out;
}

TEST_CASE("multinomial: with replacement as often as the weights say") {
  manual_seed(11);
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor weights =
        cast(Tensor::from_vector<double>({1, 0, 3, 4, 0, 0, 5, 0, 0, 5}, {2, 5}), dtype);
    const Tensor y = multinomial(weights, 8000, {.replacement = true});
    CHECK(y.shape() == Shape{2, 8000});
    CHECK(y.dtype() == DType::kI64);
    const auto first = frequencies(y.select(0, 0), 5), second = frequencies(y.select(0, 1), 5);
    CHECK(first[1] == 0);
    CHECK(first[4] == 0);
    CHECK(first[0] == Approx(0.125).margin(0.02));
    CHECK(first[2] == Approx(0.375).margin(0.02));
    CHECK(first[3] == Approx(0.5).margin(0.02));
    CHECK(second[1] == Approx(0.5).margin(0.02));
    CHECK(second[4] == Approx(0.5).margin(0.02));
  }
  manual_seed(0);
}

TEST_CASE("multinomial: without replacement each at most once, the heavy ones first") {
  manual_seed(12);
  const Tensor weights = Tensor::from_vector<float>({1, 2, 0, 5}, {4}).expand({6000, 4});
  const Tensor y = multinomial(weights, 3);
  CHECK(y.shape() == Shape{6000, 3});
  const auto draws = y.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < draws.size(); i += 3) {
    std::vector<std::int64_t> row(draws.begin() + static_cast<std::ptrdiff_t>(i),
                                  draws.begin() + static_cast<std::ptrdiff_t>(i + 3));
    std::sort(row.begin(), row.end());
    if (row != std::vector<std::int64_t>{0, 1, 3}) FAIL("row " << i / 3);
  }
  // The second: P(i first, j second) = p_i p_j / (1 - p_i).
  const double p[] = {1.0 / 8, 2.0 / 8, 0, 5.0 / 8};
  const auto first = frequencies(y.select(1, 0), 4), second = frequencies(y.select(1, 1), 4);
  for (std::size_t j : {0u, 1u, 3u}) {
    CHECK(first[j] == Approx(p[j]).margin(0.02));
    double expected = 0;
    for (std::size_t i : {0u, 1u, 3u})
      if (i != j) expected += p[i] * p[j] / (1 - p[i]);
    CHECK(second[j] == Approx(expected).margin(0.02));
  }
  manual_seed(12);
  CHECK(multinomial(weights, 3).to_vector<std::int64_t>() == draws);
  CHECK(multinomial(weights, 0).shape() == Shape{6000, 0});
  CHECK(multinomial(zeros({0, 3}), 2).shape() == Shape{0, 2});
  manual_seed(0);
}

TEST_CASE("multinomial: errors") {
  const auto of = [](const std::vector<float>& x) {
    return Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())});
  };
  const std::string bad =
      " found no weight to choose; weights must be finite, not negative, and positive in enough "
      "places";
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const auto& weights :
       {std::vector<float>{0, 0}, {2, -1}, {2, nan}, {2, infinity}, {infinity, 1}}) {
    for (bool replacement : {false, true}) {
      CHECK(thrown_by_kernel<InvalidArgument>([&] {
              multinomial(of(weights), 1, {.replacement = replacement});
            }) == "[multinomial] sample 0" + bad);
    }
  }
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          multinomial(of({0, 1, 0}), 2);
        }) == "[multinomial] sample 1" + bad);
  CHECK(thrown<InvalidArgument>([&] {
          multinomial(of({1, 1}), 3);
        }) == "[multinomial] cannot draw 3 samples from 2 weights without replacement");
  CHECK(thrown<InvalidArgument>([&] {
          multinomial(of({1, 1}), -1, {.replacement = true});
        }) == "[multinomial] cannot draw -1 samples from 2 weights with replacement");
  CHECK(thrown<InvalidArgument>([&] { multinomial(Tensor::scalar(1), 1); }) ==
        "[multinomial] needs weights [..., n], n >= 1, got shape []");
  CHECK(thrown<InvalidArgument>([&] { multinomial(arange(3), 1); }) ==
        "[multinomial] needs a floating dtype, got i64; cast it first");
}

TEST_CASE("random tensors: each call draws anew, and a seed or a step repeats them") {
  const auto draw = [] { return bits_of(randn({5})); };
  manual_seed(3);
  const auto first = draw(), second = draw();
  CHECK(first != second);
  manual_seed(3);
  CHECK(draw() == first);
  CHECK(draw() == second);
  manual_seed(4);
  CHECK(draw() != first);
  const auto in_step = [&](std::uint64_t step) {
    const random::StepScope scope({.seed = 9, .step = step});
    return draw();
  };
  CHECK(in_step(1) == in_step(1));
  CHECK(in_step(1) != in_step(2));
  manual_seed(0);
}

TEST_CASE("random tensors: errors") {
  const TensorOptions i64{.dtype = DType::kI64};
  CHECK(thrown<InvalidArgument>([&] { rand({2}, i64); }) ==
        "[rand] needs a floating dtype, got i64; use randint");
  CHECK(thrown<InvalidArgument>([&] { randn({2}, i64); }) ==
        "[randn] needs a floating dtype, got i64; use randint");
  CHECK(thrown<InvalidArgument>([&] { normal(0, 1, {2}, i64); }) ==
        "[normal] needs a floating dtype, got i64; use randint");
  CHECK(thrown<InvalidArgument>([&] { normal(0, -1, {2}); }) ==
        "[normal] stddev is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([&] { randint(2, 2, {2}); }) ==
        "[randint] low 2 is not below high 2; the range is empty");
  CHECK(thrown<InvalidArgument>([&] { randperm(-1); }) ==
        "[randperm] the count is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([&] { bernoulli(arange(2)); }) ==
        "[bernoulli] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { bernoulli(Tensor()); }) ==
        "[bernoulli] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { rand_like(Tensor()); }) ==
        "[rand_like] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { randn_like(Tensor()); }) ==
        "[randn_like] the tensor is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
