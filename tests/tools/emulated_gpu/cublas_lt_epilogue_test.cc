// Epilogues of the emulated cuBLASLt against their formulas.

#include <cmath>

#include "tessera/tests/tools/emulated_gpu/cublas_lt_call.h"

namespace tessera::testing {
namespace {

constexpr LtShape kShape = {.m = 6, .n = 5, .k = 4};
constexpr std::int64_t kAuxLd = 8;

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

template <class In, class Out>
struct WithEpilogue : LtCall<In, Out> {
  WithEpilogue(cublasLtEpilogue_t epilogue, LtShape shape = kShape)
      : LtCall<In, Out>(shape), bias(shape.m), aux(kAuxLd * shape.n * shape.batch) {
    bias.fill(5), aux.fill(6);
    this->set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    this->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
    this->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data());
    this->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kAuxLd);
  }
  DeviceNumbers<Out> bias, aux;
};

// f(i, j, product) for all elements.
template <class Call, class F>
std::vector<double> each(const Call& call, F f) {
  auto all = call.formula();
  for (std::int64_t j = 0; j < call.shape.n; ++j) {
    for (std::int64_t i = 0; i < call.shape.m; ++i) {
      auto& x = all[i + j * call.shape.m];
      x = f(i, j, x);
    }
  }
  return all;
}

TEST_CASE("BIAS adds one number to each row of D, GELU comes after it") {
  WithEpilogue<float, float> plain(CUBLASLT_EPILOGUE_BIAS), gelus(CUBLASLT_EPILOGUE_GELU_BIAS);
  const auto bias = plain.bias.read();
  REQUIRE(plain.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(gelus.run() == CUBLAS_STATUS_SUCCESS);
  require_near(plain.result(), each(plain, [&](auto i, auto, double x) { return x + bias[i]; }),
               1e-6);
  require_near(gelus.result(),
               each(gelus, [&](auto i, auto, double x) { return gelu(x + bias[i]); }), 1e-5);
}

TEST_CASE("GELU_AUX_BIAS keeps what GELU was applied to") {
  WithEpilogue<BFloat16, BFloat16> call(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  const auto bias = call.bias.read();
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  const auto before = each(call, [&](auto i, auto, double x) { return x + bias[i]; });
  const auto aux = call.aux.read();
  for (int j = 0; j < 5; ++j) {
    for (int i = 0; i < 6; ++i) {
      REQUIRE(aux[i + j * kAuxLd] == Approx(before[i + j * 6]).epsilon(4e-3).margin(1e-6));
    }
  }
  require_near(call.result(), each(call, [&](auto i, auto, double x) { return gelu(x + bias[i]); }),
               8e-3);
}

TEST_CASE("a batch shares one bias and has an auxiliary matrix each") {
  LtShape shape = kShape;
  shape.batch = 2;
  WithEpilogue<float, float> call(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, shape);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, kAuxLd * shape.n);
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  const auto bias = call.bias.read(), aux = call.aux.read();
  for (const int batch : {0, 1}) {
    const auto product = call.formula(batch), result = call.result(batch);
    for (int j = 0; j < 5; ++j) {
      for (int i = 0; i < 6; ++i) {
        const double before = product[i + j * 6] + bias[i];
        REQUIRE(aux[batch * kAuxLd * shape.n + i + j * kAuxLd] == Approx(before).margin(1e-6));
        REQUIRE(result[i + j * 6] == Approx(gelu(before)).margin(1e-5));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
