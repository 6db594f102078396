// Products that are computed in panels: extents around those of panels and of their parts.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tests/support/test_main.h"
#include "tessera/tests/tensor/ops/matmul_support.h"

namespace tessera {
namespace {

using namespace testing;

// Whole numbers from -3 to 3: every dtype holds them, and every sum of their products is exact.
Tensor whole_numbers(DType dtype, const Shape& shape, std::int64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  auto state = static_cast<std::uint64_t>(seed);
  for (double& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<double>(static_cast<std::int64_t>((state >> 33) % 7) - 3);
  }
  return cast(Tensor::from_vector(values, shape), dtype);
}

TEST_CASE("matmul: extents around those of panels, exactly") {
  const DefaultDeviceScope host(kCpu);
  const std::int64_t m = GENERATE(2, 5, 6, 7, 12, 13, 19, 49, 50, 103);
  for (const std::int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 33, 129}) {
    for (const std::int64_t k : {1, 7, 8, 9, 64, 256, 257, 520}) {
      const Tensor a = whole_numbers(DType::kF32, {m, k}, m + k);
      const Tensor b = whole_numbers(DType::kF32, {k, n}, n + k);
      const auto exact = slow_product(a, b);
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        const Tensor x = cast(a, dtype), y = cast(b, dtype);
        for (const Tensor& left : {x, by_columns(x)}) {
          for (const Tensor& right : {y, by_columns(y)}) {
            CAPTURE(m, n, k, dtype, left.strides().str(), right.strides().str());
            // Columns beside the result must stay.
            const Tensor wide = full({m, n + 9}, 5);
            const Tensor out = wide.slice(1, 0, n);
            matmul_into(out, left, right, {});
            CHECK(values(out) == exact);
            matmul_into(out, left, right, {.alpha = 1, .beta = 1});
            CHECK(values(out) == values(mul(Tensor::from_vector(exact, {m, n}), 2)));
            CHECK(values(wide.slice(1, n, n + 9)) ==
                  std::vector<double>(static_cast<std::size_t>(9 * m), 5));
          }
        }
      }
    }
  }
}

TEST_CASE("matmul: batches of 16-bit operands, accumulated in f32") {
  const DefaultDeviceScope host(kCpu);
  const Tensor a = whole_numbers(DType::kF32, {3, 7, 9}, 1),
               b = whole_numbers(DType::kF32, {3, 9, 17}, 2);
  const auto exact = values(matmul(cast(a, DType::kF64), cast(b, DType::kF64)));
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CAPTURE(dtype);
    const Tensor out = ones({3, 7, 17});
    matmul_into(out, cast(a, dtype), cast(b, dtype), {.alpha = 1, .beta = 1});
    CHECK(values(out) == values(add(Tensor::from_vector(exact, {3, 7, 17}), 1)));
  }
}

// Infinity and NaN reach the elements that they belong to, and no neighbour, although panels are computed whole.
TEST_CASE("matmul: infinity and NaN stay in their row and column") {
  const DefaultDeviceScope host(kCpu);
  const Tensor a = whole_numbers(DType::kF32, {7, 11}, 1),
               b = whole_numbers(DType::kF32, {11, 18}, 2);
  for (const float special : {INFINITY, NAN}) {
    const Tensor x = clone(a), y = clone(b);
    fill_(x.slice(0, 6, 7), special);
    fill_(y.slice(1, 17, 18), special);
    const Tensor got = matmul(x, y), expected = matmul(a, b);
    CHECK(equal_bits(clone(got.slice(0, 0, 6).slice(1, 0, 17)),
                     clone(expected.slice(0, 0, 6).slice(1, 0, 17))));
    for (const double value : values(got.slice(0, 6, 7))) CHECK_FALSE(std::isfinite(value));
    for (const double value : values(got.slice(1, 17, 18))) CHECK_FALSE(std::isfinite(value));
  }
}

TEST_CASE("matmul: without AVX-512 the bits of an element depend on its row and its column alone") {
  if (cpu_isa() != CpuIsa::kX86V3) return skip("kernels for x86-64-v4 use oneDNN");
  const DefaultDeviceScope host(kCpu);
  // 4,097: a tile of one row remains.
  const auto [m, n, k] = GENERATE(std::array<std::int64_t, 3>{523, 277, 300},
                                  std::array<std::int64_t, 3>{4097, 24, 300});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CAPTURE(dtype);
    const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
    const Tensor whole = matmul(a, b);
    for (const Tensor& left : {a, by_columns(a)}) {
      for (const Tensor& right : {b, by_columns(b)}) {
        CHECK(equal_bits(matmul(left, right), whole));
        CHECK(equal_bits(matmul(left.slice(0, 250, 263), right.slice(1, 13, 22)),
                         clone(whole.slice(0, 250, 263).slice(1, 13, 22))));
        CHECK(equal_bits(matmul(left.slice(0, m - 2, m), right), clone(whole.slice(0, m - 2, m))));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
