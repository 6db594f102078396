// The part of cublasLt.h with which callers set algorithms up themselves instead of asking the
// heuristics: ids, capabilities, configurations.

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_algorithms.h"

namespace tessera::emulated::cublas {
namespace {

#define FIELD(name, member) \
  { name, offsetof(Algorithm, member), sizeof(Algorithm::member) }
constexpr Attribute kConfig[] = {
    FIELD(CUBLASLT_ALGO_CONFIG_ID, id),
    FIELD(CUBLASLT_ALGO_CONFIG_TILE_ID, tile),
    FIELD(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, splits),
    FIELD(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction_scheme),
    FIELD(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzling),
    FIELD(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, custom_option),
    FIELD(CUBLASLT_ALGO_CONFIG_STAGES_ID, stages),
    FIELD(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, inner_shape),
    FIELD(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster_shape),
};
#undef FIELD

// What cublasLtMatmulAlgoCapGetAttribute tells of an algorithm.
struct Capabilities {
  std::int32_t split_k = 0, batches = 1, out_of_place = 1, none = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_NONE, zero = 0;
  std::uint32_t tiles[1] = {CUBLASLT_MATMUL_TILE_UNDEFINED};
  std::uint32_t stages[1] = {CUBLASLT_MATMUL_STAGES_UNDEFINED};
  std::uint32_t pointer_modes = CUBLASLT_POINTER_MODE_MASK_HOST | CUBLASLT_POINTER_MODE_MASK_DEVICE;
  std::uint32_t epilogues = 1023;
  std::uint32_t alignment[4] = {};  // of A, B, C, D; bytes
};

#define FIELD(name, member) \
  { name, offsetof(Capabilities, member), sizeof(Capabilities::member) }
#define ALIGNMENT(name, index) \
  { name, offsetof(Capabilities, alignment) + (index)*4, 4 }
constexpr Attribute kCapabilities[] = {
    FIELD(CUBLASLT_ALGO_CAP_SPLITK_SUPPORT, split_k),
    FIELD(CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK, reduction_schemes),
    FIELD(CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT, zero),
    FIELD(CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT, batches),
    FIELD(CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT, out_of_place),
    FIELD(CUBLASLT_ALGO_CAP_UPLO_SUPPORT, none),
    FIELD(CUBLASLT_ALGO_CAP_TILE_IDS, tiles),
    FIELD(CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, none),
    FIELD(CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER, none),
    FIELD(CUBLASLT_ALGO_CAP_POINTER_MODE_MASK, pointer_modes),
    FIELD(CUBLASLT_ALGO_CAP_EPILOGUE_MASK, epilogues),
    FIELD(CUBLASLT_ALGO_CAP_STAGES_IDS, stages),
    FIELD(CUBLASLT_ALGO_CAP_LD_NEGATIVE, none),
    ALIGNMENT(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, 0),
    ALIGNMENT(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES, 1),
    ALIGNMENT(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, 2),
    ALIGNMENT(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES, 3),
    FIELD(CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT, none),
    FIELD(CUBLASLT_ALGO_CAP_FLOATING_POINT_EMULATION_SUPPORT, none),
};
#undef FIELD
#undef ALIGNMENT

Capabilities capabilities_of(const Algorithm& a) {
  Capabilities c;
  c.split_k = a.id == kSplit;
  if (a.id == kSplit) c.reduction_schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const std::uint32_t types[] = {a.a_type, a.b_type, a.c_type, a.d_type};
  for (int i = 0; i < 4; ++i) {
    MatrixLayout layout;
    layout.type = types[i];
    c.alignment[i] = static_cast<std::uint32_t>(pointer_alignment(a, layout));
  }
  return c;
}

}  // namespace
}  // namespace tessera::emulated::cublas

using namespace tessera::emulated::cublas;  // NOLINT: what follows is the API itself

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t,
                                        cudaDataType_t, cudaDataType_t a, cudaDataType_t b,
                                        cudaDataType_t c, cudaDataType_t d, int requested,
                                        int ids[], int* returned) {
  if (check_handle(__func__, handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested <= 0 || ids == nullptr || returned == nullptr) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "no room for ids, or for their count");
  }
  *returned = 0;
  for (const auto type : {a, b, c, d}) {
    if (size_of(type) == 0) return CUBLAS_STATUS_SUCCESS;  // none
  }
  for (const int id : {kPlain, kVector, kSplit}) {
    if (*returned < requested) ids[(*returned)++] = id;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute_type,
                                      cudaDataType_t scale_type, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t* algorithm) {
  if (check_handle(__func__, handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algorithm == nullptr || (id != kPlain && id != kVector && id != kSplit)) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, fmt::format("no algorithm {}", id));
  }
  for (const auto type : {a, b, c, d}) {
    if (size_of(type) == 0) {
      return refuse(__func__, CUBLAS_STATUS_NOT_SUPPORTED,
                    fmt::format("type {}", static_cast<int>(type)));
    }
  }
  Algorithm made;
  made.id = id;
  made.compute_type = compute_type, made.scale_type = scale_type;
  made.a_type = static_cast<std::uint16_t>(a), made.b_type = static_cast<std::uint16_t>(b);
  made.c_type = static_cast<std::uint16_t>(c), made.d_type = static_cast<std::uint16_t>(d);
  if (id == kPlain) made.bias_alignment = made.aux_alignment = 1;
  *algorithm = {};
  std::memcpy(algorithm, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t name,
                                                 void* value, size_t size, size_t* written) {
  const Algorithm* inside = content(algorithm);
  if (inside == nullptr) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "the algorithm was not initialised");
  }
  const Capabilities all = capabilities_of(*inside);
  const Attribute* found = find_attribute(kCapabilities, name);
  // Arrays may have more room than there are entries.
  const bool array = name == CUBLASLT_ALGO_CAP_TILE_IDS || name == CUBLASLT_ALGO_CAP_STAGES_IDS;
  const std::size_t room = array && found != nullptr ? std::min(size, found->size) : size;
  return get_attribute(__func__, &all, found, {value, room}, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    const void* value, size_t size) {
  if (content(algorithm) == nullptr || name == CUBLASLT_ALGO_CONFIG_ID) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE,
                  "the algorithm was not initialised, or its id is to be changed");
  }
  return set_attribute(__func__, algorithm, find_attribute(kConfig, name), value, size);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    void* value, size_t size, size_t* written) {
  return get_attribute(__func__, content(algorithm), find_attribute(kConfig, name), {value, size},
                       written);
}

}  // extern "C"
