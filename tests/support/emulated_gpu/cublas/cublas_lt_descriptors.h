#pragma once

/// What the opaque descriptors of cublasLt.h hold in the emulated library: each is laid over the
/// `data` of its opaque struct, so that the ..Init functions may place it in the caller's memory.
///
/// Attributes that Tessera does not set do not exist here. As in the library itself, setting an
/// attribute checks its size alone; values are judged where a matrix product is asked for
/// (cublas_lt_problem.h).

#include <cublasLt.h>

#include <cstdint>
#include <string>

namespace tessera::emulated::cublas {

struct MatmulDesc {
  static constexpr std::uint32_t kMark = 0x6c74'0001;

  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_batch_stride = 0;  // elements
  std::uint32_t mark = kMark;
  std::int32_t compute_type = 0, scale_type = 0;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t));

struct MatrixLayout {
  static constexpr std::uint32_t kMark = 0x6c74'0002;

  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int64_t batch_stride = 0;  // elements
  std::uint32_t mark = kMark;
  std::uint32_t type = 0;
  std::int32_t batch_count = 1;
};
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Preference {
  static constexpr std::uint32_t kMark = 0x6c74'0003;

  std::uint64_t max_workspace = 0;  // bytes
  std::uint32_t mark = kMark;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D; bytes
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

/// The descriptor that a handle of the API stands for; null where it stands for none, because it is
/// null or was never initialised.
const MatmulDesc* content(cublasLtMatmulDesc_t handle);
const MatrixLayout* content(cublasLtMatrixLayout_t handle);
const Preference* content(cublasLtMatmulPreference_t handle);

/// Says why on stderr; see vendor_memory.h.
cublasStatus_t refuse(const char* function, cublasStatus_t status, const std::string& why);

}  // namespace tessera::emulated::cublas
