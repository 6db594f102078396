// Products of the emulated cuBLASLt against sums written here.

#include <cmath>

#include "tessera/tests/tools/emulated_gpu/cublas_lt_call.h"

namespace tessera::testing {
namespace {

template <class In, class Out>
void require_products(double tolerance) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      LtCall<In, Out> call(
          {.m = 5, .n = 3, .k = 7, .transpose_a = ta, .transpose_b = tb, .padding = 2, .batch = 2});
      call.alpha = 0.5, call.beta = -2;
      REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
      for (const int batch : {0, 1}) {
        require_near(call.result(batch), call.formula(batch), tolerance);
      }
    }
  }
}

TEST_CASE("a product is alpha AB + beta C in all four transposes, batched, with padding") {
  require_products<float, float>(1e-6);
  require_products<double, double>(1e-12);
  require_products<BFloat16, BFloat16>(8e-3);
  require_products<Float16, Float16>(1e-3);
  require_products<BFloat16, float>(1e-6);
  require_products<Float16, float>(1e-6);
}

TEST_CASE("what lies between the columns of D is left alone") {
  LtCall<float, float> call({.m = 3, .n = 2, .k = 4, .padding = 1});
  const auto before = call.d.read();
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  const auto after = call.d.read();
  REQUIRE(after[3] == before[3]);
  REQUIRE(after[7] == before[7]);
}

TEST_CASE("with beta 0 the numbers in C do not matter") {
  LtCall<float, float> call({.m = 2, .n = 2, .k = 2});
  call.c.write({NAN, NAN, NAN, NAN});
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  for (const double x : call.result()) REQUIRE(std::isfinite(x));
}

TEST_CASE("a batch stride of 0 shares an operand") {
  LtCall<float, float> call({.m = 3, .n = 2, .k = 4, .batch = 2});
  call.b_layout.set_batches(2, 0);
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  require_near(call.result(0), call.formula(0), 1e-6);
  auto second = call.b.read();
  for (int i = 0; i < 8; ++i) second[8 + i] = second[i];
  call.b.write({second.begin(), second.end()});
  require_near(call.result(1), call.formula(1), 1e-6);
}

TEST_CASE("TF32 rounds operands to 10 bits of mantissa, f32 does not") {
  LtCall<float, float> call({.m = 1, .n = 1, .k = 1});
  const float fine = 1 + 0x1p-11f + 0x1p-12f;  // nearest of 10 bits: 1 + 2^-10
  call.a.write({fine}), call.b.write({1});
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(call.result()[0] == fine);
  call.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(call.result()[0] == 1 + 0x1p-10);
}

TEST_CASE("every algorithm of the heuristics gives the product and takes no more than its bytes") {
  LtCall<BFloat16, float> call({.m = 8, .n = 16, .k = 72, .batch = 2});
  call.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(call.found.size() == 3);
  REQUIRE(call.found[0].workspaceSize > 0);
  for (const auto& one : call.found) {
    call.d.fill(9);
    DeviceNumbers<char> workspace(one.workspaceSize);
    REQUIRE(call.run(&one.algo, one.workspaceSize == 0 ? nullptr : workspace.data(),
                     one.workspaceSize) == CUBLAS_STATUS_SUCCESS);
    for (const int batch : {0, 1}) require_near(call.result(batch), call.formula(batch), 1e-5);
  }
}

}  // namespace
}  // namespace tessera::testing
