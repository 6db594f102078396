// The CPU's loops over many numbers have the bits of the long way: bf16 converted in registers and through f32 tensors,
// remainders and powers in vectors and number by number, random numbers of adjacent blocks and of each block alone.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Rounded to bf16 as if it were a number, its bits would overflow.
constexpr double kNanOfOnes = std::bit_cast<double>(~std::uint64_t{0});

// Every bf16 number, in an order in which neighbours differ: times `step`, which is odd, modulo 2^16.
Tensor all_numbers(std::uint32_t step) {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::uint32_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i * step);
  return Tensor::from_host(bits.data(), bits.size(), DType::kBF16, {1 << 16}, kCpu);
}

std::vector<float> values(const Tensor& x) { return cast(x, DType::kF32).to_vector<float>(); }

// How many elements differ in their bits; every NaN is the same.
std::size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    count += !both_nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  }
  return count;
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// f of bf16 operands, and of the same in f32, rounded at the end.
std::size_t wrong(const Function& f, const std::vector<Tensor>& operands) {
  std::vector<Tensor> wide;
  for (const Tensor& x : operands) wide.push_back(cast(x, DType::kF32));
  return differing(values(f(operands)), values(cast(f(wide), DType::kBF16)));
}

const std::vector<std::pair<std::string, Function>>& functions() {
  using V = std::vector<Tensor>;
  static const std::vector<std::pair<std::string, Function>> all = {
      {"neg", [](const V& x) { return neg(x[0]); }},
      {"abs", [](const V& x) { return abs(x[0]); }},
      {"sign", [](const V& x) { return sign(x[0]); }},
      {"square", [](const V& x) { return square(x[0]); }},
      {"reciprocal", [](const V& x) { return reciprocal(x[0]); }},
      {"sqrt", [](const V& x) { return sqrt(x[0]); }},
      {"rsqrt", [](const V& x) { return rsqrt(x[0]); }},
      {"relu", [](const V& x) { return relu(x[0]); }},
      {"floor", [](const V& x) { return floor(x[0]); }},
      {"ceil", [](const V& x) { return ceil(x[0]); }},
      {"round", [](const V& x) { return round(x[0]); }},
      {"trunc", [](const V& x) { return trunc(x[0]); }},
      {"add", [](const V& x) { return add(x[0], x[1]); }},
      {"sub", [](const V& x) { return sub(x[0], x[1]); }},
      {"mul", [](const V& x) { return mul(x[0], x[1]); }},
      {"div", [](const V& x) { return div(x[0], x[1]); }},
      {"maximum", [](const V& x) { return maximum(x[0], x[1]); }},
      {"minimum", [](const V& x) { return minimum(x[0], x[1]); }},
      {"fmax", [](const V& x) { return fmax(x[0], x[1]); }},
      {"fmin", [](const V& x) { return fmin(x[0], x[1]); }},
      {"relu_backward", [](const V& x) { return relu_backward(x[0], x[1]); }},
      {"tanh_backward", [](const V& x) { return tanh_backward(x[0], x[1]); }},
      {"sigmoid_backward", [](const V& x) { return sigmoid_backward(x[0], x[1]); }},
      {"mul by a number", [](const V& x) { return mul(x[0], 0.3); }},
      {"mul by a NaN of ones", [](const V& x) { return mul(x[0], kNanOfOnes); }},
      {"a multiple by a NaN of ones", [](const V& x) { return add(x[0], x[1], kNanOfOnes); }},
      {"from a number", [](const V& x) { return sub(0.3, x[0]); }},
      {"maximum and a number", [](const V& x) { return maximum(x[0], 0.3); }},
      {"clamp", [](const V& x) { return clamp(x[0], -0.3, 0.7); }},
      {"clamp by tensors", [](const V& x) { return clamp(x[0], x[1], 0.7); }},
      {"lerp", [](const V& x) { return lerp(x[0], x[1], 0.3); }},
      {"lerp by tensors", [](const V& x) { return lerp(x[0], x[1], x[2]); }},
      {"addcmul", [](const V& x) { return addcmul(x[0], x[1], x[2], 0.3); }},
      {"addcmul by a NaN of ones",
       [](const V& x) { return addcmul(x[0], x[1], x[2], kNanOfOnes); }},
      {"addcdiv", [](const V& x) { return addcdiv(x[0], x[1], x[2], 0.3); }},
      {"remainder", [](const V& x) { return remainder(x[0], x[1]); }},
      {"pow", [](const V& x) { return pow(x[0], 3); }},
  };
  return all;
}

TEST_CASE("bf16 converted in registers has the bits of the way through f32, for all numbers") {
  const std::vector<Tensor> x = {all_numbers(1), all_numbers(40503), all_numbers(257)};
  for (const auto& [name, f] : functions()) {
    INFO(name);
    CHECK(wrong(f, x) == 0);
    const auto table = [&](std::size_t i) { return x[i].view({256, 256}); };
    const auto row = [&](std::size_t i) { return x[i].slice(0, 16000, 16256).view({1, 256}); };
    const auto column = [&](std::size_t i) {
      return x[i].slice(0, 0, 1 << 16, 256).view({256, 1});
    };
    const bool same_shape = name.ends_with("backward");
    if (same_shape) continue;
    CHECK(wrong(f, {table(0), row(1), column(2)}) == 0);
    CHECK(wrong(f, {table(0), column(1), row(2)}) == 0);
    CHECK(wrong(f, {row(0), table(1), table(2)}) == 0);
  }
}

TEST_CASE("bf16 converted in registers: every length, and any layout") {
  const std::vector<Tensor> x = {all_numbers(1), all_numbers(40503), all_numbers(257)};
  const auto parts = [&](std::int64_t begin, std::int64_t n, std::int64_t step) {
    std::vector<Tensor> out;
    for (const Tensor& each : x) out.push_back(each.slice(0, begin, begin + n * step, step));
    return out;
  };
  for (const auto& [name, f] : functions()) {
    INFO(name);
    for (std::int64_t n : {0, 1, 7, 15, 16, 17, 31, 33, 100, 33001})
      CHECK(wrong(f, parts(16001, n, 1)) == 0);
    CHECK(wrong(f, parts(16001, 1000, 3)) == 0);
    std::vector<Tensor> turned;
    for (const Tensor& each : parts(16000, 15 * 33, 1))
      turned.push_back(transpose(each.view({15, 33}), 0, 1));
    CHECK(wrong(f, turned) == 0);
    turned[0] = clone(turned[0]);
    CHECK(wrong(f, turned) == 0);
  }
  const Tensor in_place = clone(x[0]);
  mul_(in_place, 0.3);
  CHECK(differing(values(in_place), values(mul(x[0], 0.3))) == 0);
}

// Pairs of numbers: the usual sizes, all sizes, exact multiples, and the ends of the range.
std::vector<std::pair<float, float>> pairs() {
  const std::vector<float> ends = {
      0,       -0.0F, 1,      -1,       kInfinity, -kInfinity,  kNan,       0.5F,
      -0.5F,   2,     -2,     3,        -3,        1.5F,        -2.5F,      1e-45F,
      -1e-45F, 3e38F, -3e38F, 16777215, 16777216,  0.99999994F, 1.0000001F, -1.0000001F};
  std::vector<std::pair<float, float>> all;
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state >> 32);
  };
  const auto usual = [&] { return static_cast<float>(next()) * 0x1p-30F - 2.0F; };
  for (int i = 0; i < 200000; ++i) all.emplace_back(usual(), usual());
  for (int i = 0; i < 50000; ++i) {
    const float b = usual();
    all.emplace_back(b * static_cast<float>(next() % 500000), b);
    all.emplace_back(static_cast<float>(next() % 2001) - 1000,
                     static_cast<float>(next() % 21) - 10);
  }
  for (int i = 0; i < 50000; ++i)
    all.emplace_back(std::bit_cast<float>(next()), std::bit_cast<float>(next()));
  for (float a : ends)
    for (float b : ends) all.emplace_back(a, b);
  return all;
}

template <class F>
std::vector<float> one_by_one(const F& f) {
  std::vector<float> out;
  for (const auto& [a, b] : pairs()) out.push_back(f(a, b));
  return out;
}

std::pair<Tensor, Tensor> operands() {
  std::vector<float> a, b;
  for (const auto& [x, y] : pairs()) {
    a.push_back(x);
    b.push_back(y);
  }
  const Shape shape = {static_cast<std::int64_t>(a.size())};
  return {Tensor::from_vector(a, shape), Tensor::from_vector(b, shape)};
}

TEST_CASE("remainders of many numbers are those of fmod") {
  const auto [a, b] = operands();
  CHECK(differing(fmod(a, b).to_vector<float>(), one_by_one(functors::Fmod())) == 0);
  CHECK(differing(remainder(a, b).to_vector<float>(), one_by_one(functors::Remainder())) == 0);
  CHECK(differing(floor_divide(a, b).to_vector<float>(), one_by_one(functors::FloorDivide())) == 0);
  const Tensor in_place = clone(b);
  copy_(in_place, remainder(a, in_place));
  CHECK(differing(in_place.to_vector<float>(), one_by_one(functors::Remainder())) == 0);
}

// How many are not the f32 nearest to std::pow, and whether one is farther than the next.
struct Powers {
  std::size_t rounded_otherwise = 0, farther = 0;
};
Powers compare_powers(const std::vector<float>& found, const std::vector<float>& expected) {
  Powers count;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (differing({found[i]}, {expected[i]}) == 0) continue;
    ++count.rounded_otherwise;
    count.farther += !(std::nextafter(found[i], expected[i]) == expected[i]);
  }
  return count;
}

float exact_pow(float a, float b) {
  return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

TEST_CASE("powers of many numbers are rounded once; signs, zeros and infinities as in IEEE's pow") {
  const auto [a, b] = operands();
  const Powers general = compare_powers(pow(a, b).to_vector<float>(), one_by_one(exact_pow));
  CHECK(general.rounded_otherwise <= 400);  // of 350,000: halfway between two numbers
  CHECK(general.farther == 0);
  for (double exponent : {-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 4.0, 5.0, 0.3}) {
    INFO(exponent);
    const auto one = [&](float x, float) { return exact_pow(x, static_cast<float>(exponent)); };
    const Powers powers = compare_powers(pow(a, exponent).to_vector<float>(), one_by_one(one));
    CHECK(powers.rounded_otherwise <= 400);
    CHECK(powers.farther == 0);
  }
}

TEST_CASE("random numbers at any position are those of their block") {
  constexpr std::int64_t kNumbers = 2003;
  for (std::int64_t first : {std::int64_t{0}, std::int64_t{5}, (std::int64_t{1} << 34) - 1001,
                             (std::int64_t{1} << 50) + 3}) {
    const random::Box box = {.global = {std::int64_t{1} << 60}, .offset = {first}};
    const Tensor uniform = Tensor::empty({kNumbers}), normal = Tensor::empty({kNumbers});
    random::fill_uniform(uniform, random::Key{77}, box, 0, 1);
    random::fill_normal(normal, random::Key{77}, box, 0, 1);
    std::vector<float> uniforms, normals;
    for (std::int64_t i = first; i < first + kNumbers; ++i) {
      const random::Words words = random::philox(77, static_cast<std::uint64_t>(i / 4));
      uniforms.push_back(random::uniforms(words, 0.0F).n[i % 4]);
      normals.push_back(random::normals(words, 0.0F).n[i % 4]);
    }
    CHECK(differing(uniform.to_vector<float>(), uniforms) == 0);
    CHECK(differing(normal.to_vector<float>(), normals) == 0);
  }
}

}  // namespace
}  // namespace tessera
