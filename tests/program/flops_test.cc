// Tests of the operations that training needs, and of the machine's peak per second.
#include <catch2/catch.hpp>
#include <chrono>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tools/program/flops.h"

namespace tessera::tools {
namespace {

TEST_CASE("model flops: weights and attention", "[watch]") {
  CHECK(training_flops_per_token({.matmul_parameters = 1000}) == 6000);
  CHECK(training_flops_per_token({.layers = 2, .dim = 8, .length = 16, .causal = false}) == 3072);
  CHECK(training_flops_per_token({.matmul_parameters = 7, .layers = 2, .dim = 8, .length = 16}) ==
        42 + 1536);
  // GPT-3: 6 x 175e9; attention adds a few per cent.
  const double gpt3 = training_flops_per_token(
      {.matmul_parameters = 175'000'000'000, .layers = 96, .dim = 12288, .length = 2048});
  CHECK(gpt3 == Approx(1.05e12 + 1.45e10).epsilon(1e-3));
}

TEST_CASE("peak flops: at least what a product just reached", "[watch]") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    constexpr std::int64_t kSize = 256;
    const Tensor a = full({kSize, kSize}, 0.5, {.dtype = dtype});
    const auto start = std::chrono::steady_clock::now();
    const Tensor product = matmul(a, a);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(product.defined());
    const double peak = measure_peak_flops(dtype);
    CAPTURE(dtype_name(dtype), peak);
    CHECK(peak > 0.2 * 2 * kSize * kSize * kSize / seconds);
    CHECK(peak < 1e15);
  }
  CHECK_THROWS_AS(measure_peak_flops(DType::kI64), InvalidArgument);
}

}  // namespace
}  // namespace tessera::tools
