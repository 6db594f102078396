#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_descriptors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::cublas {
namespace {

// Where an attribute lies in the struct that holds it.
struct Attribute {
  int name;
  std::size_t offset, size;
};

#define FIELD(name, Struct, member) \
  { name, offsetof(Struct, member), sizeof(Struct::member) }
#define ALIGNMENT(name, index) \
  { name, offsetof(Preference, alignment) + (index)*4, 4 }

constexpr Attribute kMatmulDesc[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulDesc, compute_type),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, MatmulDesc, trans_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, MatmulDesc, trans_b),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulDesc, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulDesc, bias),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, MatmulDesc, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, MatmulDesc, aux_ld),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, MatmulDesc, aux_batch_stride),
};
constexpr Attribute kMatrixLayout[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, MatrixLayout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, MatrixLayout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, MatrixLayout, cols),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, MatrixLayout, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, MatrixLayout, batch_count),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, MatrixLayout, batch_stride),
};
constexpr Attribute kPreference[] = {
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, max_workspace),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, reduction_schemes),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 0),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 1),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 2),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 3),
};
#undef FIELD
#undef ALIGNMENT

struct Status {
  cublasStatus_t value;
  const char *name, *text;
};
#define STATUS(value, text) \
  { value, #value, text }
constexpr Status kStatuses[] = {
    STATUS(CUBLAS_STATUS_SUCCESS, "success"),
    STATUS(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
    STATUS(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"),
    STATUS(CUBLAS_STATUS_INVALID_VALUE,
           "an unsupported value or parameter was passed to the function"),
    STATUS(CUBLAS_STATUS_ARCH_MISMATCH,
           "the function requires an architectural feature absent from the device"),
    STATUS(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed"),
    STATUS(CUBLAS_STATUS_EXECUTION_FAILED, "the function failed to launch on the GPU"),
    STATUS(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed"),
    STATUS(CUBLAS_STATUS_NOT_SUPPORTED, "the requested functionality is not supported"),
    STATUS(CUBLAS_STATUS_LICENSE_ERROR, "the license check failed"),
};
#undef STATUS

const char* find(cublasStatus_t value, const char* Status::*what) {
  for (const Status& one : kStatuses) {
    if (one.value == value) return one.*what;
  }
  return "unrecognized status";
}

template <class Content, class Opaque>
Content* held(Opaque* handle) {
  auto* inside = reinterpret_cast<Content*>(handle);
  return inside == nullptr || inside->mark != Content::kMark ? nullptr : inside;
}

template <class Opaque, class Content>
cublasStatus_t init(const char* function, Opaque* place, std::size_t size, const Content& content) {
  if (place == nullptr) return refuse(function, CUBLAS_STATUS_INVALID_VALUE, "no descriptor");
  if (size < sizeof(Opaque)) {
    return refuse(function, CUBLAS_STATUS_ALLOC_FAILED,
                  fmt::format("{} bytes given, {} needed", size, sizeof(Opaque)));
  }
  new (place) Content(content);
  return CUBLAS_STATUS_SUCCESS;
}

// What the ..SetAttribute functions do. `Content` is what the opaque struct holds.
template <class Content, class Opaque, std::size_t count>
cublasStatus_t set(const char* function, Opaque* handle, const Attribute (&table)[count], int name,
                   const void* value, std::size_t size) {
  const auto no = [&](const std::string& why) {
    return refuse(function, CUBLAS_STATUS_INVALID_VALUE, why);
  };
  Content* holder = held<Content>(handle);
  if (holder == nullptr) return no("the descriptor is null or not initialised");
  const auto* attribute =
      std::find_if(table, table + count, [&](const Attribute& one) { return one.name == name; });
  if (attribute == table + count) return no(fmt::format("attribute {} is not emulated", name));
  if (value == nullptr || size != attribute->size) {
    return no(fmt::format("attribute {} has {} bytes, {} {} given", name, attribute->size, size,
                          value == nullptr ? "at null" : "were"));
  }
  std::memcpy(reinterpret_cast<char*>(holder) + attribute->offset, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const MatmulDesc* content(cublasLtMatmulDesc_t handle) { return held<MatmulDesc>(handle); }
const MatrixLayout* content(cublasLtMatrixLayout_t handle) { return held<MatrixLayout>(handle); }
const Preference* content(cublasLtMatmulPreference_t handle) { return held<Preference>(handle); }

cublasStatus_t refuse(const char* function, cublasStatus_t status, const std::string& why) {
  return emulated::refuse(function, status, cublasLtGetStatusName(status), why);
}

}  // namespace tessera::emulated::cublas

using namespace tessera::emulated::cublas;  // NOLINT: what follows is the API itself

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) { return find(status, &Status::name); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return find(status, &Status::text); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute_type,
                                               cudaDataType_t scale_type) {
  MatmulDesc content;
  content.compute_type = compute_type;
  content.scale_type = scale_type;
  return init(__func__, desc, size, content);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t size) {
  return set<MatmulDesc>(__func__, desc, kMatmulDesc, name, value, size);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  MatrixLayout content;
  content.type = type, content.rows = rows, content.cols = cols, content.ld = ld;
  return init(__func__, layout, size, content);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t size) {
  return set<MatrixLayout>(__func__, layout, kMatrixLayout, name, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  return init(__func__, preference, size, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t size) {
  return set<Preference>(__func__, preference, kPreference, name, value, size);
}

}  // extern "C"
