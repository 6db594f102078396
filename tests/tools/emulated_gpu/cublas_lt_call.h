// One call of cublasLtMatmul as tests write it: column-major operands in device memory, results
// read back as doubles.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tessera/tensor/half.h"

namespace tessera::testing {

template <class T>
constexpr cudaDataType cuda_type() {
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
  if constexpr (std::is_same_v<T, BFloat16>) return CUDA_R_16BF;
  if constexpr (std::is_same_v<T, Float16>) return CUDA_R_16F;
}

// Device memory that starts `shift` elements behind an address of cudaMalloc.
template <class T>
struct DeviceNumbers {
  explicit DeviceNumbers(std::size_t count, std::size_t shift = 0) : count(count), shift(shift) {
    REQUIRE(cudaMalloc(&base, (count + shift + 1) * sizeof(T)) == cudaSuccess);
  }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;
  ~DeviceNumbers() { cudaFree(base); }

  T* data() const { return static_cast<T*>(base) + shift; }
  // Whole numbers of eighths: exact in every type.
  void fill(unsigned seed) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      seed = seed * 1664525u + 1013904223u;
      values[i] = T(static_cast<float>(static_cast<int>(seed >> 28) - 8) / 8);
    }
    write(values);
  }
  void write(const std::vector<T>& values) {
    REQUIRE(cudaMemcpy(data(), values.data(), count * sizeof(T), cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  std::vector<double> read() const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<T> values(count);
    REQUIRE(cudaMemcpy(values.data(), data(), count * sizeof(T), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    return {values.begin(), values.end()};
  }

  void* base = nullptr;
  std::size_t count, shift;
};

struct LtLayout {
  LtLayout(cudaDataType type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
    REQUIRE(cublasLtMatrixLayoutInit(handle, type, rows, cols, ld) == CUBLAS_STATUS_SUCCESS);
  }
  LtLayout(const LtLayout&) = delete;
  LtLayout& operator=(const LtLayout&) = delete;
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t name, T value) {
    REQUIRE(cublasLtMatrixLayoutSetAttribute(handle, name, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  void set_batches(std::int32_t count, std::int64_t stride) {
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  cublasLtMatrixLayoutOpaque_t opaque{};
  cublasLtMatrixLayout_t handle = &opaque;
};

// One for all calls on the first GPU: Tessera does not destroy its handles either.
inline cublasLtHandle_t lt_handle() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    REQUIRE(cublasLtCreate(&created) == CUBLAS_STATUS_SUCCESS);
    return created;
  }();
  return handle;
}

struct LtShape {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  std::int64_t padding = 0;  // of every leading dimension
  int batch = 1;
};

// D = alpha * op(A) * op(B) + beta * C, with C its own matrix. Members may be changed before run().
template <class In, class Out>
struct LtCall {
  explicit LtCall(const LtShape& s)
      : shape(s),
        lda((s.transpose_a ? s.k : s.m) + s.padding),
        ldb((s.transpose_b ? s.n : s.k) + s.padding),
        ldd(s.m + s.padding),
        a(lda * (s.transpose_a ? s.m : s.k) * s.batch),
        b(ldb * (s.transpose_b ? s.k : s.n) * s.batch),
        c(ldd * s.n * s.batch),
        d(ldd * s.n * s.batch),
        a_layout(cuda_type<In>(), s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, lda),
        b_layout(cuda_type<In>(), s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, ldb),
        c_layout(cuda_type<Out>(), s.m, s.n, ldd),
        d_layout(cuda_type<Out>(), s.m, s.n, ldd) {
    const bool f64 = std::is_same_v<Out, double>;
    REQUIRE(cublasLtMatmulDescInit(op, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   f64 ? CUDA_R_64F : CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulPreferenceInit(preference) == CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    a.fill(1), b.fill(2), c.fill(3), d.fill(4);
    if (s.batch > 1) {
      a_layout.set_batches(s.batch, a.count / s.batch);
      b_layout.set_batches(s.batch, b.count / s.batch);
      c_layout.set_batches(s.batch, c.count / s.batch);
      d_layout.set_batches(s.batch, d.count / s.batch);
    }
  }
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, T value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(op, name, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t name, T value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  // The status of the query; algorithms are in `found`.
  cublasStatus_t query() {
    int count = -1;
    found.assign(8, {});
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, op, a_layout.handle, b_layout.handle, c_layout.handle, d_layout.handle, preference,
        8, found.data(), &count);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? count : 0);
    return status;
  }
  cublasStatus_t run(const cublasLtMatmulAlgo_t* algorithm = nullptr, void* workspace = nullptr,
                     std::size_t workspace_size = 0) {
    Scale scales[2] = {static_cast<Scale>(alpha), static_cast<Scale>(beta)};
    return cublasLtMatmul(handle, op, &scales[0], a.data(), a_layout.handle, b.data(),
                          b_layout.handle, &scales[1], c.data(), c_layout.handle, d.data(),
                          d_layout.handle, algorithm, workspace, workspace_size, nullptr);
  }
  // The formula: alpha * sum over k, plus beta * C, of the operands in memory. Index i + j * m.
  std::vector<double> formula(int batch = 0) const {
    const auto x = a.read(), y = b.read(), z = c.read();
    const auto x0 = batch * a.count / shape.batch, y0 = batch * b.count / shape.batch,
               z0 = batch * c.count / shape.batch;
    std::vector<double> result(shape.m * shape.n);
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t i = 0; i < shape.m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < shape.k; ++l) {
          sum += x[x0 + (shape.transpose_a ? l + i * lda : i + l * lda)] *
                 y[y0 + (shape.transpose_b ? j + l * ldb : l + j * ldb)];
        }
        result[i + j * shape.m] = alpha * sum + beta * z[z0 + i + j * ldd];
      }
    }
    return result;
  }
  // D without its padding, in the same order.
  std::vector<double> result(int batch = 0) const {
    const auto all = d.read();
    std::vector<double> dense(shape.m * shape.n);
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t i = 0; i < shape.m; ++i) {
        dense[i + j * shape.m] = all[batch * d.count / shape.batch + i + j * ldd];
      }
    }
    return dense;
  }

  using Scale = std::conditional_t<std::is_same_v<Out, double>, double, float>;
  LtShape shape;
  std::int64_t lda, ldb, ldd;
  double alpha = 1, beta = 0;
  DeviceNumbers<In> a, b;
  DeviceNumbers<Out> c, d;
  LtLayout a_layout, b_layout, c_layout, d_layout;
  cublasLtMatmulDescOpaque_t op_opaque{};
  cublasLtMatmulPreferenceOpaque_t preference_opaque{};
  const cublasLtHandle_t handle = lt_handle();
  const cublasLtMatmulDesc_t op = &op_opaque;
  const cublasLtMatmulPreference_t preference = &preference_opaque;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
};

// |actual - expected| <= tolerance * (1 + |expected|), element by element.
inline void require_near(const std::vector<double>& actual, const std::vector<double>& expected,
                         double tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    INFO("element " << i);
    REQUIRE(actual[i] == Approx(expected[i]).margin(tolerance).epsilon(tolerance));
  }
}

}  // namespace tessera::testing
