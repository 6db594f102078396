// sin and cos in f32: the reduction of angles of every size.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/math/scalar_trig.h"

namespace tessera {
namespace {

// Compared with f64, rounded: the last bit may differ if f64 lies halfway between two f32.
bool is_near(float value, double exact) {
  const auto rounded = static_cast<float>(exact);
  const float next = std::nextafter(rounded, value);
  return std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(rounded) ||
         (value == next && std::abs(exact - 0.5 * (double{value} + rounded)) < 1e-12);
}

bool are_near(float x) {
  return is_near(scalar::sin(x), std::sin(double{x})) &&
         is_near(scalar::cos(x), std::cos(double{x}));
}

TEST_CASE("scalar trig: finite angles of every size") {
  std::int64_t wrong = 0;
  // 9973 is coprime to powers of 2.
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 9973) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(x) && !are_near(x)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("scalar trig: next to multiples of a quarter turn") {
  std::int64_t wrong = 0;
  for (std::int64_t n = 1; n < std::int64_t{1} << 50; n += 1 + n / 64) {
    const auto x = static_cast<float>(static_cast<double>(n) * 1.5707963267948966);
    const float infinity = std::numeric_limits<float>::infinity();
    for (float near : {std::nextafter(x, 0.0f), x, std::nextafter(x, infinity), -x})
      wrong += are_near(near) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("scalar trig: zeros, the change of reductions, no finite angle") {
  CHECK(std::signbit(scalar::sin(-0.0f)));
  CHECK(!std::signbit(scalar::sin(0.0f)));
  CHECK(scalar::cos(-0.0f) == 1.0f);
  for (float x : {0x1p30f, 0x1.fffffep29f, 0x1.000002p30f, 0x1.fffffep127f, -0x1p30f, 0x1p-149f})
    CHECK(are_near(x));
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(std::isnan(scalar::sin(x)));
    CHECK(std::isnan(scalar::cos(x)));
  }
}

}  // namespace
}  // namespace tessera
