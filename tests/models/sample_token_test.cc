// Drawing one token: frequencies, the tokens that top-k and top-p keep, repeatability, errors.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/models/generate.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using Numbers = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor row(const Numbers& logits) {
  return Tensor::from_vector(logits, {static_cast<std::int64_t>(logits.size())});
}

// The probabilities by definition: a token's position is the number of tokens that come before it;
// top-k keeps the first k positions, and top-p those before which less than p is used up.
Numbers probabilities(const Numbers& logits, const SamplingOptions& options) {
  const std::size_t count = logits.size();
  const auto is_before = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  const auto normalized = [&](const Numbers& weights) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    Numbers out;
    for (const double weight : weights) out.push_back(weight / sum);
    return out;
  };
  Numbers left(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t place = 0;
    for (std::size_t j = 0; j < count; ++j) place += is_before(j, i);
    if (options.top_k == 0 || place < options.top_k)
      left[i] = std::exp(logits[i] / options.temperature);
  }
  left = normalized(left);
  Numbers out = left;
  for (std::size_t i = 0; i < count; ++i) {
    double before = 0;
    bool is_first = true;
    for (std::size_t j = 0; j < count; ++j) {
      if (!is_before(j, i)) continue;
      before += left[j];
      is_first = false;
    }
    if (!is_first && before >= options.top_p) out[i] = 0;
  }
  return normalized(out);
}

// Draws many tokens and compares the counts with these probabilities: zero counts for probability
// zero, and Pearson's statistic at most five standard deviations above its mean.
void check_draws(const Numbers& logits, const SamplingOptions& options, const Numbers& expected) {
  constexpr std::int64_t kDraws = 8000;
  // Drawing runs on the host; that many reads from a GPU would take minutes.
  const DefaultDeviceScope host(kCpu);
  const Tensor tensor = row(logits);
  std::vector<std::int64_t> counts(logits.size());
  for (std::int64_t draw = 0; draw < kDraws; ++draw)
    ++counts.at(static_cast<std::size_t>(sample_token(tensor, options, draw)));
  double squares = 0;
  double freedom = -1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    INFO("token " << i << " came " << counts[i] << " times, probability " << expected[i]);
    if (expected[i] == 0) {
      CHECK(counts[i] == 0);
      continue;
    }
    const double mean = expected[i] * kDraws;
    const double difference = static_cast<double>(counts[i]) - mean;
    squares += difference * difference / mean;
    ++freedom;
  }
  CHECK(squares <= freedom + 5 * std::sqrt(2 * std::max(freedom, 0.0)) + 1e-9);
}

TEST_CASE("tokens come as often as their probabilities say") {
  const Numbers logits = {0.5, -1, 1.5, 0.5, -2, 0};
  const double temperature = GENERATE(0.4, 1.0, 3.0);
  Numbers expected;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit / temperature);
  for (const double logit : logits) expected.push_back(std::exp(logit / temperature) / sum);
  check_draws(logits, {.temperature = temperature, .seed = 11}, expected);
}

TEST_CASE("top-k and top-p leave what their definitions leave") {
  const Numbers logits =
      GENERATE(Numbers{0.5, -1, 1.5, 0.5, -2, 0, 0.5}, Numbers{1, 1, 1, 1}, Numbers{-3});
  const std::int64_t top_k = GENERATE(0, 1, 2, 3, 100);
  const double top_p = GENERATE(0.0, 0.3, 0.5, 0.9, 1.0);
  const SamplingOptions options{.temperature = 0.8, .top_k = top_k, .top_p = top_p, .seed = 5};
  CAPTURE(top_k, top_p);
  check_draws(logits, options, probabilities(logits, options));
}

TEST_CASE("of equally likely tokens the lower index comes first") {
  const Tensor logits = row({0, 2, 1, 2, 2, 1});
  for (std::int64_t draw = 0; draw < 50; ++draw) {
    CHECK(sample_token(logits, {.temperature = 0, .seed = 3}, draw) == 1);
    CHECK(sample_token(logits, {.top_k = 1, .seed = 3}, draw) == 1);
    CHECK(sample_token(logits, {.top_p = 0, .seed = 3}, draw) == 1);
    CHECK(sample_token(logits, {.top_k = 2, .seed = 3}, draw) % 2 == 1);
    CHECK(sample_token(logits, {.top_k = 2, .seed = 3}, draw) < 4);
  }
}

TEST_CASE("a draw depends on seed, number and logits only") {
  const Numbers logits = {0.5, -1, 1.5, 0.5, -2, 0};
  const auto draws = [&](std::uint64_t seed, DType dtype) {
    std::vector<std::int32_t> out;
    for (std::int64_t draw = 0; draw < 100; ++draw)
      out.push_back(sample_token(cast(row(logits), dtype), {.seed = seed}, draw));
    return out;
  };
  const std::vector<std::int32_t> first = draws(1, DType::kF64);
  for (std::int64_t draw = 99; draw >= 0; --draw) {
    CHECK(sample_token(row(logits), {.seed = 1}, draw) == first[static_cast<std::size_t>(draw)]);
  }
  CHECK(first != draws(2, DType::kF64));
  // These logits are exact in every dtype.
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  CHECK(first == draws(1, dtype));
}

TEST_CASE("extreme logits and temperatures") {
  for (std::int64_t draw = 0; draw < 50; ++draw) {
    CHECK(sample_token(row({-1e308, 1e308, 0}), {}, draw) == 1);
    CHECK(sample_token(row({1, 1.5, -4}), {.temperature = 1e-300}, draw) == 1);
    CHECK(sample_token(row({-kInfinity, 3, -kInfinity}), {}, draw) == 1);
    CHECK(sample_token(row({-kInfinity, 3, -kInfinity}), {.temperature = 0}, draw) == 1);
    CHECK(sample_token(row({-kInfinity, 3, 3}), {.temperature = 1e300}, draw) != 0);
    CHECK(sample_token(row({7}), {}, draw) == 0);
  }
}

TEST_CASE("a token is not sampled from what gives no probabilities") {
  const Tensor good = row({1, 2});
  CHECK_THROWS_WITH(sample_token(good, {.max_tokens = -1}, 0),
                    Contains("[models.sample_token] max_tokens is -1; it is at least 0"));
  const double temperature = GENERATE(-0.5, kInfinity, kNan);
  CHECK_THROWS_WITH(sample_token(good, {.temperature = temperature}, 0),
                    Contains("temperature is") && Contains("give a number that is at least 0"));
  CHECK_THROWS_WITH(sample_token(good, {.top_k = -2}, 0),
                    Contains("top_k is -2; give at least 1, or 0 for all tokens"));
  const double top_p = GENERATE(-0.1, 1.1, kNan);
  CHECK_THROWS_WITH(sample_token(good, {.top_p = top_p}, 0),
                    Contains("top_p is") && Contains("it lies between 0 and 1"));
  CHECK_THROWS_WITH(sample_token(good, {}, -3), Contains("draw is -3; draws count from 0"));
  CHECK_THROWS_WITH(sample_token(good.unsqueeze(0), {}, 0),
                    Contains("expected logits [vocab_size] in floating point, got f64 [1, 2]"));
  CHECK_THROWS_AS(sample_token(row({}), {}, 0), InvalidArgument);
  CHECK_THROWS_WITH(sample_token(cast(good, DType::kI64), {}, 0), Contains("got i64 [2]"));
  const SamplingOptions options{.temperature = GENERATE(0.0, 1.0)};
  CHECK_THROWS_AS(sample_token(row({1, kNan, 2}), options, 0), StateError);
  CHECK_THROWS_WITH(sample_token(row({1, kNan, 2}), options, 0),
                    Contains("logit 1 of 3 is NaN: the model's parameters or its input are bad"));
  CHECK_THROWS_WITH(sample_token(row({1, kInfinity}), options, 0),
                    Contains("the largest of 2 logits is inf, which leaves no probabilities"));
  CHECK_THROWS_AS(sample_token(row({-kInfinity, -kInfinity}), options, 0), StateError);
}

}  // namespace
}  // namespace tessera::models
