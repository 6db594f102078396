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
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

template <class In, class Out>
struct WithEpilogue : LtCall<In, Out> {
  WithEpilogue(cublasLtEpilogue_t epilogue, LtShape shape = kShape)
      : LtCall<In, Out>(shape),
        bias(std::max(shape.m, shape.n) * shape.batch),
        aux(kAuxLd * shape.n * shape.batch) {
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

TEST_CASE("BIAS adds one number to each row of D, RELU and GELU come after it") {
  WithEpilogue<float, float> plain(CUBLASLT_EPILOGUE_BIAS), relu(CUBLASLT_EPILOGUE_RELU_BIAS),
      gelus(CUBLASLT_EPILOGUE_GELU_BIAS);
  const auto bias = plain.bias.read();
  REQUIRE(plain.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(relu.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(gelus.run() == CUBLAS_STATUS_SUCCESS);
  require_near(plain.result(), each(plain, [&](auto i, auto, double x) { return x + bias[i]; }),
               1e-6);
  require_near(relu.result(),
               each(relu, [&](auto i, auto, double x) { return std::max(0.0, x + bias[i]); }),
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

TEST_CASE("DGELU multiplies by GELU's slope, BGRAD sums the rows of that") {
  WithEpilogue<float, float> call(CUBLASLT_EPILOGUE_DGELU_BGRAD);
  const auto aux = call.aux.read();
  REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
  const auto expected =
      each(call, [&](auto i, auto j, double x) { return x * gelu_slope(aux[i + j * kAuxLd]); });
  require_near(call.result(), expected, 1e-5);
  const auto sums = call.bias.read();
  for (int i = 0; i < 6; ++i) {
    double sum = 0;
    for (int j = 0; j < 5; ++j) sum += expected[i + j * 6];
    REQUIRE(sums[i] == Approx(sum).margin(1e-5));
  }
}

TEST_CASE("BGRADA and BGRADB sum an operand over k and leave the product as it is") {
  WithEpilogue<float, float> of_a(CUBLASLT_EPILOGUE_BGRADA), of_b(CUBLASLT_EPILOGUE_BGRADB);
  REQUIRE(of_a.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(of_b.run() == CUBLAS_STATUS_SUCCESS);
  require_near(of_a.result(), of_a.formula(), 1e-6);
  require_near(of_b.result(), of_b.formula(), 1e-6);
  const auto a = of_a.a.read(), b = of_b.b.read();
  const auto rows = of_a.bias.read(), columns = of_b.bias.read();
  for (int i = 0; i < 6; ++i) {
    REQUIRE(rows[i] == Approx(a[i] + a[i + 6] + a[i + 12] + a[i + 18]).margin(1e-6));
  }
  for (int j = 0; j < 5; ++j) {
    REQUIRE(columns[j] ==
            Approx(b[4 * j] + b[4 * j + 1] + b[4 * j + 2] + b[4 * j + 3]).margin(1e-6));
  }
}

TEST_CASE("RELU_AUX keeps a bit for each element, DRELU reads it") {
  LtCall<float, float> forward(kShape), backward(kShape);
  DeviceNumbers<unsigned char> bits(128 / 8 * 5);
  for (auto* call : {&forward, &backward}) {
    call->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, bits.data());
    call->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{128});
  }
  forward.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX);
  backward.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU);
  backward.alpha = 3;
  REQUIRE(forward.run() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(backward.run() == CUBLAS_STATUS_SUCCESS);
  const auto x = forward.formula();
  require_near(forward.result(),
               each(forward, [](auto, auto, double y) { return std::max(y, 0.0); }), 1e-6);
  require_near(backward.result(),
               each(backward, [&](auto i, auto j, double y) { return x[i + j * 6] > 0 ? y : 0; }),
               1e-6);
}

TEST_CASE("bias vectors of a batch are one for all, or one each") {
  LtShape shape = kShape;
  shape.batch = 2;
  WithEpilogue<float, float> call(CUBLASLT_EPILOGUE_BIAS, shape);
  const auto bias = call.bias.read();
  for (const std::int64_t stride : {0, 6}) {
    call.set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, stride);
    REQUIRE(call.run() == CUBLAS_STATUS_SUCCESS);
    const auto product = call.formula(1), result = call.result(1);
    for (int j = 0; j < 5; ++j) {
      for (int i = 0; i < 6; ++i) {
        REQUIRE(result[i + j * 6] == Approx(product[i + j * 6] + bias[i + stride]).margin(1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
