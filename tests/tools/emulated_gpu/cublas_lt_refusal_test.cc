// What the emulated cuBLASLt refuses, with the status of the documentation.

#include <cstdlib>
#include <string>

#include "tessera/tests/tools/emulated_gpu/cublas_lt_call.h"

namespace tessera::testing {
namespace {

constexpr LtShape kShape = {.m = 8, .n = 4, .k = 16};
using Call = LtCall<float, float>;

TEST_CASE("attributes have sizes") {
  Call call(kShape);
  const std::uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  const auto set = [](cublasLtMatmulDesc_t op, int name, const void* value, std::size_t size) {
    return cublasLtMatmulDescSetAttribute(op, cublasLtMatmulDescAttributes_t(name), value, size);
  };
  REQUIRE(set(call.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(set(call.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 8) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(set(call.op, CUBLASLT_MATMUL_DESC_EPILOGUE, nullptr, 4) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(set(call.op, 9, &epilogue, 4) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(set(call.op, CUBLASLT_MATMUL_DESC_POINTER_MODE, &epilogue, 4) ==
          CUBLAS_STATUS_INVALID_VALUE);  // not emulated
  cublasLtMatmulDescOpaque_t never_set_up{};
  REQUIRE(set(&never_set_up, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4) ==
          CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("statuses have names and texts") {
  REQUIRE(std::string(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED)) ==
          "CUBLAS_STATUS_NOT_SUPPORTED");
  REQUIRE(std::string(cublasLtGetStatusString(CUBLAS_STATUS_ALLOC_FAILED)) ==
          "the resource allocation failed");
  REQUIRE(std::string(cublasLtGetStatusName(cublasStatus_t(2))) == "unrecognized status");
}

// The status of the heuristics and of a call, which must be one.
cublasStatus_t refused(Call& call) {
  const cublasStatus_t status = call.query();
  REQUIRE(call.run() == status);
  return status;
}

TEST_CASE("shapes, leading dimensions and batches that cannot be are invalid") {
  using Setting = void (*)(Call&);
  const Setting settings[] = {
      [](Call& c) { c.d_layout.set(CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{7}); },
      [](Call& c) { c.b_layout.set(CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{15}); },
      [](Call& c) { c.a_layout.set(CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{7}); },
      [](Call& c) { c.a_layout.set(CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{0}); },
      [](Call& c) { c.a_layout.set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2); },
      [](Call& c) { c.c_layout.set(CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF); },
      [](Call& c) { c.set(CUBLASLT_MATMUL_DESC_TRANSA, 7); },
      [](Call& c) {  // batches of D on one another
        for (auto* x : {&c.a_layout, &c.b_layout, &c.c_layout, &c.d_layout}) x->set_batches(2, 0);
      },
  };
  for (const Setting& set : settings) {
    Call call(kShape);
    set(call);
    INFO("setting " << &set - settings);
    REQUIRE(refused(call) == CUBLAS_STATUS_INVALID_VALUE);
  }
}

TEST_CASE("types that are in no row of the table are not supported") {
  Call narrow(kShape);
  for (auto* x : {&narrow.c_layout, &narrow.d_layout})
    x->set(CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF);
  REQUIRE(refused(narrow) == CUBLAS_STATUS_NOT_SUPPORTED);
  Call mixed(kShape);
  mixed.b_layout.set(CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF);
  REQUIRE(refused(mixed) == CUBLAS_STATUS_NOT_SUPPORTED);
  Call wide(kShape);
  wide.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_64F);
  REQUIRE(refused(wide) == CUBLAS_STATUS_NOT_SUPPORTED);
  LtCall<BFloat16, float> tf32(kShape);
  tf32.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
  REQUIRE(tf32.query() == CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_CASE("epilogues say what they need") {
  Call bias(kShape);
  bias.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  REQUIRE(bias.query() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(bias.run() == CUBLAS_STATUS_INVALID_VALUE);  // no vector
  DeviceNumbers<float> vector(8);
  bias.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.data());
  REQUIRE(refused(bias) == CUBLAS_STATUS_SUCCESS);
  bias.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS);
  REQUIRE(refused(bias) == CUBLAS_STATUS_NOT_SUPPORTED);  // not emulated

  for (const std::int64_t ld : {0, 4, 12}) {
    Call aux({.m = 5, .n = 2, .k = 3});
    DeviceNumbers<float> kept(64);
    aux.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
    aux.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept.data());
    aux.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    REQUIRE(refused(aux) == CUBLAS_STATUS_INVALID_VALUE);
  }
}

TEST_CASE("a run may have epilogues refused") {
  Call call(kShape);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
  setenv("TESSERA_EMULATED_CUBLAS_REFUSED_EPILOGUES", "32", 1);
  REQUIRE(refused(call) == CUBLAS_STATUS_NOT_SUPPORTED);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  REQUIRE(refused(call) == CUBLAS_STATUS_SUCCESS);
  unsetenv("TESSERA_EMULATED_CUBLAS_REFUSED_EPILOGUES");
}

TEST_CASE("pointers must be as aligned as the heuristics were told") {
  LtCall<BFloat16, BFloat16> call(kShape);
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  DeviceNumbers<BFloat16> odd(8 * 16, 1);
  const auto with_odd_a = [&](const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(call.handle, call.op, &one, odd.data(), call.a_layout.handle,
                          call.b.data(), call.b_layout.handle, &zero, call.d.data(),
                          call.d_layout.handle, call.d.data(), call.d_layout.handle, &algorithm,
                          nullptr, 0, nullptr);
  };
  REQUIRE(with_odd_a(call.found.front().algo) == CUBLAS_STATUS_NOT_SUPPORTED);
  call.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 2u);
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(with_odd_a(call.found.front().algo) == CUBLAS_STATUS_SUCCESS);
  call.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 1u);
  REQUIRE(call.query() == CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_CASE("a bias must be as aligned as the one that the heuristics saw") {
  Call call(kShape);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  DeviceNumbers<float> vector(8), odd(8, 1);
  call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.data());
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  auto algorithm = call.found.front().algo;
  call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, odd.data());
  REQUIRE(call.run(&algorithm) == CUBLAS_STATUS_NOT_SUPPORTED);
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(call.run(&call.found.front().algo) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("workspaces are large enough and aligned") {
  Call call(kShape);
  call.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{4096});
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  const auto& best = call.found.front();
  REQUIRE(best.workspaceSize > 0);
  DeviceNumbers<char> room(8192);
  REQUIRE(call.run(&best.algo, room.data(), best.workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(call.run(&best.algo, nullptr, 4096) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(call.run(&best.algo, room.data() + 128, 4096) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(call.run(&best.algo, room.data(), 4096) == CUBLAS_STATUS_SUCCESS);
  call.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0});
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  for (const auto& one : call.found) REQUIRE(one.workspaceSize == 0);
}

TEST_CASE("an algorithm is for the types it was made for") {
  Call call(kShape);
  LtCall<BFloat16, float> other(kShape);
  REQUIRE(call.query() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(other.run(&call.found.front().algo) == CUBLAS_STATUS_INVALID_VALUE);
  const cublasLtMatmulAlgo_t never_set_up{};
  REQUIRE(call.run(&never_set_up) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("handles that are none, missing scalars, missing matrices") {
  Call call(kShape);
  const float one = 1;
  const auto run = [&](cublasLtHandle_t handle, const void* alpha, const void* c) {
    return cublasLtMatmul(handle, call.op, alpha, call.a.data(), call.a_layout.handle,
                          call.b.data(), call.b_layout.handle, &one, c, call.c_layout.handle,
                          call.d.data(), call.d_layout.handle, nullptr, nullptr, 0, nullptr);
  };
  REQUIRE(run(nullptr, &one, call.c.data()) == CUBLAS_STATUS_NOT_INITIALIZED);
  REQUIRE(run(call.handle, nullptr, call.c.data()) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(run(call.handle, &one, nullptr) == CUBLAS_STATUS_INVALID_VALUE);
  int count = 0;
  cublasLtMatmulHeuristicResult_t result;
  REQUIRE(cublasLtMatmulAlgoGetHeuristic(call.handle, call.op, call.a_layout.handle,
                                         call.b_layout.handle, call.c_layout.handle,
                                         call.d_layout.handle, call.preference, 0, &result,
                                         &count) == CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace tessera::testing
