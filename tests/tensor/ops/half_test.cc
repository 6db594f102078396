// 16-bit floats: round trip of every value, and rounding against an independent one in double.

#include "tessera/tensor/half.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

// Rounds x to `precision` bits with exponents from `least` on, ties to even: by the definition.
double rounded(double x, int precision, int least, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - precision, least));
  const double y = std::nearbyint(x / unit) * unit;
  return std::abs(y) > largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : y;
}
double to_bfloat16(double x) { return rounded(x, 8, -133, 0x1.fep127); }
double to_float16(double x) { return rounded(x, 11, -24, 65504); }

template <class T>
void check_all_patterns() {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    T half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    const T back(value);
    if (std::isnan(value)) {
      wrong += !(std::isnan(static_cast<float>(back)));
    } else {
      wrong += !(back.bits == half.bits);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("half: every 16-bit pattern survives the way through f32") {
  check_all_patterns<BFloat16>();
  check_all_patterns<Float16>();
}

std::vector<double> probes() {
  std::vector<double> x = {0.0,
                           -0.0,
                           1,
                           65504,
                           65519.99,
                           65520,
                           65536,
                           1e-8,
                           5.96e-8,
                           2.98e-8,
                           2.9802322387695312e-08,
                           6.1e-5,
                           6.097e-5,
                           3.4e38,
                           3.39e38,
                           3.3961e38,
                           1e-40,
                           9.2e-41,
                           1e300,
                           1e-300};
  std::uint64_t state = 1;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<std::uint32_t>(state >> 32);
    const auto f = static_cast<double>(std::bit_cast<float>(bits));
    if (std::isnan(f)) continue;
    x.push_back(f);
    x.push_back(std::ldexp(1.0 + 0x1p-52 * static_cast<double>(state >> 12),
                           static_cast<int>(bits % 60) - 40));
    // A tie between two adjacent values, and values just beside it.
    const double tie = 1 + (static_cast<double>(bits % 1024) + 0.5) * 0x1p-10;
    for (double nudge : {0.0, 0x1p-45, -0x1p-45}) x.push_back(tie + nudge);
    const double coarse = 1 + (static_cast<double>(bits % 128) + 0.5) * 0x1p-7;
    for (double nudge : {0.0, 0x1p-45, -0x1p-45}) x.push_back(coarse + nudge);
  }
  return x;
}

TEST_CASE("half: rounds once, to nearest with ties to even, from f32 and from f64") {
  int wrong = 0;
  for (double x : probes()) {
    const auto f = static_cast<float>(x);
    wrong += !(static_cast<double>(BFloat16(f)) == to_bfloat16(f));
    wrong += !(static_cast<double>(Float16(f)) == to_float16(f));
    wrong += !(static_cast<double>(BFloat16(x)) == to_bfloat16(x));
    wrong += !(static_cast<double>(Float16(x)) == to_float16(x));
  }
  CHECK(wrong == 0);
  CHECK(std::signbit(static_cast<float>(Float16(-0.0f))));
  CHECK(std::signbit(static_cast<float>(BFloat16(-1e-42))) == true);
  CHECK(std::isnan(static_cast<float>(Float16(std::nanf("")))));
  CHECK(std::isnan(static_cast<float>(BFloat16(std::nan("")))));
  CHECK(static_cast<float>(Float16(std::int64_t{2049})) == 2048.0f);
}

TEST_CASE("half: the vector conversion of kernels gives the same bits") {
  std::vector<float> x;
  for (double probe : probes()) x.push_back(static_cast<float>(probe));
  x.push_back(std::nanf(""));
  const Tensor t = Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())});
  const auto halves = cast(t, DType::kF16).to_vector<Float16>();
  const auto brains = cast(t, DType::kBF16).to_vector<BFloat16>();
  const auto back = cast(cast(t, DType::kF16), DType::kF32).to_vector<float>();
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && !default_device().is_cpu()) {  // a GPU may give it other bits
      wrong += !(std::isnan(static_cast<float>(halves[i])) && std::isnan(back[i]) &&
                 std::isnan(static_cast<float>(brains[i])));
      continue;
    }
    wrong += !(halves[i].bits == Float16(x[i]).bits);
    wrong += !(brains[i].bits == BFloat16(x[i]).bits);
    wrong += !(std::bit_cast<std::uint32_t>(back[i]) ==
               std::bit_cast<std::uint32_t>(static_cast<float>(halves[i])));
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace tessera
