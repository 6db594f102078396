#pragma once

/// What the opaque descriptors of cublasLt.h hold in the emulated library: each is laid over the
/// `data` of its opaque struct, so that the ..Init functions may place it in the caller's memory.
///
/// As in the library itself, setting an attribute checks its size alone; values are judged where a
/// matrix product is asked for (cublas_lt_problem.h).

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::emulated::cublas {

struct MatmulDesc {
  static constexpr std::uint32_t kMark = 0x6c74'0001;

  const void* bias = nullptr;  // or where a bias gradient goes
  std::int64_t bias_batch_stride = 0;
  void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_batch_stride = 0;
  std::int64_t alpha_batch_stride = 0;
  /// Scales of 8-bit formats, amax and emulation of wide formats: none of them is emulated. In the
  /// order of their attributes: 17 to 21, 23, 24, 36, 38.
  const void* scales[9] = {};
  std::uint32_t mark = kMark;
  std::int32_t compute_type = 0, scale_type = 0;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
  std::int32_t fill_mode = CUBLAS_FILL_MODE_FULL;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t sm_count_target = 0;
  std::int32_t aux_type = -1, bias_type = -1;
  std::int32_t scale_modes[6] = {};  // attributes 31 to 35 and 37
  std::int8_t fast_accumulation = 0;
};
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t));

struct MatrixLayout {
  static constexpr std::uint32_t kMark = 0x6c74'0002;

  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int64_t batch_stride = 0;  // elements
  std::int64_t plane_offset = 0;
  std::uint32_t mark = kMark;
  std::uint32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch_count = 1;
  std::uint32_t batch_mode = CUBLASLT_BATCH_MODE_STRIDED;
};
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Preference {
  static constexpr std::uint32_t kMark = 0x6c74'0003;

  std::uint64_t max_workspace = 0;  // bytes
  std::uint64_t implementations = ~std::uint64_t{0};
  std::uint32_t mark = kMark;
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D; bytes
  float max_waves = 0;
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

/// The descriptor that a handle of the API stands for; null where it stands for none, because it is
/// null or was never initialised.
const MatmulDesc* content(cublasLtMatmulDesc_t handle);
const MatrixLayout* content(cublasLtMatrixLayout_t handle);
const Preference* content(cublasLtMatmulPreference_t handle);

/// Where an attribute lies in the struct that holds it.
struct Attribute {
  int name;
  std::size_t offset, size;
};
/// What the ..GetAttribute and ..SetAttribute functions do, once the struct is found.
struct Bytes {
  void* at;
  std::size_t size;
};
cublasStatus_t set_attribute(const char* function, void* holder, const Attribute* attribute,
                             const void* value, std::size_t size);
cublasStatus_t get_attribute(const char* function, const void* holder, const Attribute* attribute,
                             Bytes value, std::size_t* written);
template <std::size_t count>
const Attribute* find_attribute(const Attribute (&table)[count], int name) {
  for (const Attribute& one : table) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

/// Says why on stderr; see vendor_memory.h.
cublasStatus_t refuse(const char* function, cublasStatus_t status, const std::string& why);

}  // namespace tessera::emulated::cublas
