#include "tessera/tensor/random.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using random::Box;
using random::Key;
using random::whole;

TEST_CASE("philox: the known answers of its authors") {
  const auto words = [](std::uint64_t key, random::Words counter) {
    const random::Words out = random::philox(key, counter);
    return std::vector<std::uint32_t>(out.w, out.w + 4);
  };
  CHECK(words(0, {{0, 0, 0, 0}}) ==
        std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(~std::uint64_t{0}, {{~0u, ~0u, ~0u, ~0u}}) ==
        std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(0x299f31d0a4093822, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}) ==
        std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("named_key: fixed for all time, apart for seeds and names") {
  CHECK(random::named_key(0, "").value == 0xef46db3751d8e999u);  // XXH64 of the empty string
  CHECK(random::named_key(1, "fc.weight") == random::named_key(1, "fc.weight"));
  CHECK_FALSE(random::named_key(1, "fc.weight") == random::named_key(2, "fc.weight"));
  CHECK_FALSE(random::named_key(1, "fc.weight") == random::named_key(1, "fc.bias"));
}

template <class T>
std::vector<T> normal_values(const Shape& shape, std::uint64_t key) {
  const Tensor x = Tensor::empty(shape, {.dtype = dtype_of<T>});
  random::fill_normal(x, Key{key}, whole(shape), 0, 1);
  return x.to_vector<T>();
}

// The expected value at position i of a key's sequence, computed by the baseline build of the same
// header.
template <class T>
T normal_at(std::uint64_t key, std::uint64_t i) {
  constexpr std::uint64_t kPerBlock = random::kNumbersPerBlock<T>;
  return random::normals(random::philox(key, i / kPerBlock), T{}).n[i % kPerBlock];
}

template <class T>
void check_normal_bits() {
  const auto values = normal_values<T>({4999}, 42);
  std::vector<T> expected;
  for (std::uint64_t i = 0; i < values.size(); ++i) expected.push_back(normal_at<T>(42, i));
  CHECK(same_bits(values, expected));
}

TEST_CASE("fill_normal: bits do not depend on the instruction set of the build") {
  check_normal_bits<float>();
  check_normal_bits<double>();
}

TEST_CASE("normal numbers: close to Box and Muller in long double") {
  for (std::uint64_t block = 0; block < 20'000; ++block) {
    const random::Words words = random::philox(7, block);
    const auto u = random::uniforms(words, 0.0);
    const auto n = random::normals(words, 0.0);
    const long double radius = std::sqrt(-2 * std::log(1.0L - static_cast<long double>(u.n[0])));
    const long double angle = 2 * 3.14159265358979323846264L * static_cast<long double>(u.n[1]);
    REQUIRE(std::abs(static_cast<double>(n.n[0] - radius * std::cos(angle))) < 4e-15);
    REQUIRE(std::abs(static_cast<double>(n.n[1] - radius * std::sin(angle))) < 4e-15);
    const auto u32 = random::uniforms(words, 0.0f);
    const auto n32 = random::normals(words, 0.0f);
    const double radius32 = std::sqrt(-2 * std::log(1.0 - static_cast<double>(u32.n[2])));
    const double angle32 = 2 * 3.14159265358979323846 * static_cast<double>(u32.n[3]);
    REQUIRE(std::abs(n32.n[2] - radius32 * std::cos(angle32)) < 2e-6);
    REQUIRE(std::abs(n32.n[3] - radius32 * std::sin(angle32)) < 2e-6);
  }
}

template <class T>
void check_moments() {
  const auto x = normal_values<T>({400, 1000}, 3);
  const auto n = static_cast<double>(x.size());
  double mean = 0, square = 0, fourth = 0;
  std::int64_t beyond_two = 0;
  for (T value : x) {
    mean += value / n;
    square += value * value / n;
    fourth += value * value * value * value / n;
    beyond_two += std::abs(value) > 2;
  }
  CHECK(std::abs(mean) < 0.006);  // within 4 standard errors
  CHECK(std::abs(square - 1) < 0.009);
  CHECK(std::abs(fourth - 3) < 0.065);
  CHECK(static_cast<double>(beyond_two) / n == Approx(0.0455).margin(0.0014));
}

TEST_CASE("fill_normal: moments") {
  check_moments<float>();
  check_moments<double>();
  const Tensor x = Tensor::empty({5});
  random::fill_normal(x, Key{42}, whole({5}), 10, 0);
  CHECK(x.to_vector<float>() == std::vector<float>(5, 10));
}

TEST_CASE("fill_uniform: range, mean, spread over all of it") {
  const Tensor x = Tensor::empty({100'000});
  random::fill_uniform(x, Key{5}, whole({100'000}), -1, 3);
  std::vector<int> histogram(16);
  double mean = 0;
  for (float value : x.to_vector<float>()) {
    REQUIRE((value >= -1 && value <= 3));
    ++histogram[std::min<std::size_t>(15, static_cast<std::size_t>((value + 1) * 4))];
    mean += value / 1e5;
  }
  CHECK(mean == Approx(1).margin(0.015));
  for (int count : histogram) CHECK(count == Approx(6250).margin(350));
}

template <class T>
void check_boxes() {
  const Shape global{7, 5, 11};
  const Tensor all = Tensor::empty(global, {.dtype = dtype_of<T>});
  random::fill_normal(all, Key{99}, whole(global), 0.5, 2);
  for (const Shape& offset : {Shape{0, 0, 0}, Shape{2, 1, 3}, Shape{6, 4, 10}, Shape{7, 0, 0}}) {
    Shape shape;
    for (int d = 0; d < 3; ++d) shape.push_back(std::min<std::int64_t>(global[d] - offset[d], 4));
    const Tensor expected = all.slice(0, offset[0], offset[0] + shape[0])
                                .slice(1, offset[1], offset[1] + shape[1])
                                .slice(2, offset[2], offset[2] + shape[2]);
    for (const Tensor& part : layouts(zeros(shape, all.options()))) {
      random::fill_normal(part, Key{99}, {.global = global, .offset = offset}, 0.5, 2);
      CHECK(same_bits(part.to_vector<T>(), expected.to_vector<T>()));
    }
  }
}

TEST_CASE("a box of the global tensor has the global tensor's numbers, in any layout") {
  check_boxes<float>();
  check_boxes<double>();
}

TEST_CASE("random numbers: equal bits for any number of threads") {
  CHECK(same_for_any_threads([] { return normal_values<float>({3, 50'001}, 8); }));
}

TEST_CASE("permutation: a permutation, of the key, unbiased") {
  auto order = random::permutation(1000, Key{1});
  CHECK(order == random::permutation(1000, Key{1}));
  CHECK(order != random::permutation(1000, Key{2}));
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> expected(1000);
  std::iota(expected.begin(), expected.end(), std::int64_t{0});
  CHECK(order == expected);
  CHECK(random::permutation(0, Key{1}).empty());
  std::vector<int> counts(6);
  for (std::uint64_t key = 0; key < 6000; ++key) {
    const auto p = random::permutation(3, Key{key});
    ++counts[static_cast<std::size_t>(p[0] * 2 + (p[1] > p[2]))];
  }
  for (int count : counts) CHECK(count == Approx(1000).margin(130));
}

TEST_CASE("random: errors") {
  const Tensor x = zeros({2, 3});
  CHECK(
      thrown<InvalidArgument>([&] {
        random::fill_normal(x, {}, {.global = {4, 4}, .offset = {3, 0}}, 0, 1);
      }) ==
      "[fill_normal] a box of shape [2, 3] at [3, 0] does not lie inside the global shape [4, 4]");
  CHECK(thrown<InvalidArgument>([&] { random::fill_uniform(x, {}, whole({6}), 0, 1); }) ==
        "[fill_uniform] a box of shape [2, 3] at [0] does not lie inside the global shape [6]");
  CHECK(thrown<InvalidArgument>([&] { random::fill_uniform(arange(3), {}, whole({3}), 0, 1); }) ==
        "[fill_uniform] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] {
          random::fill_uniform(x, {}, whole({2, 3}), 1, 0);
        }) == "[fill_uniform] low 1 is above high 0; swap them");
  CHECK(thrown<InvalidArgument>([&] {
          random::fill_normal(x, {}, whole({2, 3}), 0, -1);
        }) == "[fill_normal] stddev is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([&] { random::permutation(-1, {}); }) ==
        "[permutation] the count is -1; it must not be negative");
}

double erfc_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST_CASE("normal_quantile: the inverse of the distribution function") {
  for (double x = -8; x <= 5; x += 0.0625) {
    const double p = erfc_cdf(x);
    // The error that rounding p alone can cause: about eps p / density.
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * 3.14159265358979);
    CHECK(std::abs(random::normal_quantile(p) - x) < 1e-14 + 4e-16 * p / density);
  }
  CHECK(random::normal_quantile(0.5) == 0);
  CHECK(random::normal_quantile(0) == -std::numeric_limits<double>::infinity());
  CHECK(random::normal_quantile(1) == std::numeric_limits<double>::infinity());
}

// The fraction of numbers below x.
double share_below(const std::vector<double>& values, double x) {
  const auto below = std::count_if(values.begin(), values.end(), [=](double v) { return v < x; });
  return static_cast<double>(below) / static_cast<double>(values.size());
}

std::vector<double> as_doubles(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

TEST_CASE("fill_truncated_normal: bounds and distribution, in every floating dtype") {
  const random::TruncatedNormal wanted = {.mean = 1, .stddev = 2, .low = -1, .high = 4};
  const double below = erfc_cdf(-1), inside = erfc_cdf(1.5) - below;
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor x = Tensor::empty({200, 251}, {.dtype = dtype});
    random::fill_truncated_normal(x, Key{5}, whole(x.shape()), wanted);
    const auto values = as_doubles(x);
    CHECK(*std::min_element(values.begin(), values.end()) >= -1);
    CHECK(*std::max_element(values.begin(), values.end()) <= 4);
    for (double at : {-0.5, 0.3, 1.01, 2.2, 3.5}) {
      const double expected = (erfc_cdf((at - 1) / 2) - below) / inside;
      CHECK(share_below(values, at) == Approx(expected).margin(0.012));
    }
  }
}

TEST_CASE("fill_bernoulli: the share of ones, and the edges; any dtype") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = Tensor::empty({100, 301}, {.dtype = dtype});
    random::fill_bernoulli(x, Key{6}, whole(x.shape()), 0.3);
    const auto values = as_doubles(x);
    CHECK(std::accumulate(values.begin(), values.end(), 0.0) / 30100 == Approx(0.3).margin(0.01));
    CHECK(share_below(values, 0.5) + std::accumulate(values.begin(), values.end(), 0.0) / 30100 ==
          Approx(1));
    random::fill_bernoulli(x, Key{6}, whole(x.shape()), 0);
    CHECK(as_doubles(x) == std::vector<double>(30100, 0.0));
    random::fill_bernoulli(x, Key{6}, whole(x.shape()), 1);
    CHECK(as_doubles(x) == std::vector<double>(30100, 1.0));
  }
}

TEST_CASE("fill_integers: range, evenness, any dtype that holds it") {
  for (DType dtype :
       {DType::kI64, DType::kI32, DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor x = Tensor::empty({70'000}, {.dtype = dtype});
    random::fill_integers(x, Key{7}, whole(x.shape()), -3, 4);
    std::array<int, 7> counts{};
    for (double v : as_doubles(x)) ++counts.at(static_cast<std::size_t>(v + 3));
    for (int count : counts) CHECK(std::abs(count - 10'000) < 400);
  }
  const Tensor big = Tensor::empty({1000}, {.dtype = DType::kI64});
  random::fill_integers(big, Key{8}, whole({1000}), -(std::int64_t{1} << 52),
                        std::int64_t{1} << 52);
  CHECK(share_below(as_doubles(big), 0) == Approx(0.5).margin(0.06));
  const Tensor bits = Tensor::empty({1000}, {.dtype = DType::kBool});
  random::fill_integers(bits, Key{9}, whole({1000}), 0, 2);
  CHECK(share_below(as_doubles(bits), 0.5) == Approx(0.5).margin(0.06));
}

TEST_CASE("random fills: a part of a box has the numbers of the whole, for any threads and dtype") {
  const Shape shape = {37, 53};
  const auto fills = std::to_array<void (*)(const Tensor&, const Box&)>({
      [](const Tensor& x, const Box& box) { random::fill_truncated_normal(x, Key{1}, box); },
      [](const Tensor& x, const Box& box) { random::fill_bernoulli(x, Key{2}, box, 0.4); },
      [](const Tensor& x, const Box& box) { random::fill_integers(x, Key{3}, box, 0, 100); },
      [](const Tensor& x, const Box& box) { random::fill_uniform(x, Key{4}, box, 0, 1); },
      [](const Tensor& x, const Box& box) { random::fill_normal(x, Key{5}, box, 0, 1); },
  });
  for (auto fill_box : fills) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      const Tensor all = Tensor::empty(shape, {.dtype = dtype});
      fill_box(all, whole(shape));
      const Tensor part = Tensor::empty({20, 11}, {.dtype = dtype}).transpose(0, 1);
      fill_box(part, {.global = shape, .offset = {5, 30}});
      CHECK(bits_of(part) == bits_of(all.slice(0, 5, 16).slice(1, 30, 50)));
    }
  }
  const Tensor half = Tensor::empty({999}, {.dtype = DType::kBF16}),
               full_width = Tensor::empty({999});
  random::fill_normal(half, Key{5}, whole({999}), 0, 1);
  random::fill_normal(full_width, Key{5}, whole({999}), 0, 1);
  CHECK(bits_of(half) == bits_of(cast(full_width, DType::kBF16)));
}

TEST_CASE("random fills: errors of the further distributions") {
  const Tensor x = zeros({2}), i = zeros({2}, {.dtype = DType::kI64});
  CHECK(thrown<InvalidArgument>([&] { random::fill_truncated_normal(i, {}, whole({2})); }) ==
        "[fill_truncated_normal] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] {
          random::fill_truncated_normal(x, {}, whole({2}), {.stddev = 0});
        }) == "[fill_truncated_normal] stddev is 0; it must be above 0");
  CHECK(thrown<InvalidArgument>([&] {
          random::fill_truncated_normal(x, {}, whole({2}), {.low = 1, .high = 1});
        }) == "[fill_truncated_normal] low 1 is not below high 1; leave room between them");
  CHECK(thrown<InvalidArgument>([&] { random::fill_bernoulli(x, {}, whole({2}), 1.5); }) ==
        "[fill_bernoulli] p is 1.5; a probability lies in [0, 1]");
  CHECK(thrown<InvalidArgument>([&] { random::fill_integers(i, {}, whole({2}), 3, 3); }) ==
        "[fill_integers] low 3 is not below high 3; the range is empty");
  CHECK(thrown<InvalidArgument>([&] {
          random::fill_integers(zeros({2}, {.dtype = DType::kU8}), {}, whole({2}), 0, 257);
        }) ==
        "[fill_integers] u8 does not hold all whole numbers from 0 to 256; use a wider dtype");
  CHECK_THROWS_AS(random::fill_integers(i, {}, whole({3, 3}), 0, 2), InvalidArgument);
}

}  // namespace
}  // namespace tessera
