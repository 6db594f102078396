#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_descriptors.h"

#include <fmt/core.h>

#include <cstring>
#include <new>

#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::cublas {
namespace {

#define FIELD(name, Struct, member) \
  { name, offsetof(Struct, member), sizeof(Struct::member) }
#define SCALE(name, index) \
  { name, offsetof(MatmulDesc, scales) + (index) * sizeof(void*), sizeof(void*) }
#define SCALE_MODE(name, index) \
  { name, offsetof(MatmulDesc, scale_modes) + (index)*4, 4 }
#define ALIGNMENT(name, index) \
  { name, offsetof(Preference, alignment) + (index)*4, 4 }

constexpr Attribute kMatmulDesc[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulDesc, compute_type),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, MatmulDesc, scale_type),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, MatmulDesc, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, MatmulDesc, trans_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, MatmulDesc, trans_b),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSC, MatmulDesc, trans_c),
    FIELD(CUBLASLT_MATMUL_DESC_FILL_MODE, MatmulDesc, fill_mode),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulDesc, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulDesc, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, MatmulDesc, bias_batch_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, MatmulDesc, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, MatmulDesc, aux_ld),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, MatmulDesc, aux_batch_stride),
    FIELD(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, MatmulDesc, alpha_batch_stride),
    FIELD(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, MatmulDesc, sm_count_target),
    SCALE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 0),
    SCALE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 1),
    SCALE(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, 2),
    SCALE(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, 3),
    SCALE(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, 4),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, MatmulDesc, aux_type),
    SCALE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, 5),
    SCALE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER, 6),
    FIELD(CUBLASLT_MATMUL_DESC_FAST_ACCUM, MatmulDesc, fast_accumulation),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, MatmulDesc, bias_type),
    SCALE_MODE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 0),
    SCALE_MODE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 1),
    SCALE_MODE(CUBLASLT_MATMUL_DESC_C_SCALE_MODE, 2),
    SCALE_MODE(CUBLASLT_MATMUL_DESC_D_SCALE_MODE, 3),
    SCALE_MODE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE, 4),
    SCALE(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, 7),
    SCALE_MODE(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, 5),
    SCALE(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, 8),
};
constexpr Attribute kMatrixLayout[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, MatrixLayout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, MatrixLayout, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, MatrixLayout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, MatrixLayout, cols),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, MatrixLayout, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, MatrixLayout, batch_count),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, MatrixLayout, batch_stride),
    FIELD(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, MatrixLayout, plane_offset),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, MatrixLayout, batch_mode),
};
constexpr Attribute kPreference[] = {
    FIELD(CUBLASLT_MATMUL_PREF_SEARCH_MODE, Preference, search_mode),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, max_workspace),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, reduction_schemes),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 0),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 1),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 2),
    ALIGNMENT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 3),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, Preference, max_waves),
    FIELD(CUBLASLT_MATMUL_PREF_IMPL_MASK, Preference, implementations),
};

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

template <class Opaque, class Content>
cublasStatus_t create(const char* function, Opaque** handle, const Content& content) {
  if (handle == nullptr) return refuse(function, CUBLAS_STATUS_INVALID_VALUE, "no place given");
  *handle = new Opaque{};
  return init(function, *handle, sizeof(Opaque), content);
}

template <class Content, class Opaque>
cublasStatus_t destroy(const char* function, Opaque* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_SUCCESS;
  auto* inside = held<Content>(handle);
  if (inside == nullptr) {
    return refuse(function, CUBLAS_STATUS_INVALID_VALUE, "not a live descriptor of this kind");
  }
  inside->mark = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const MatmulDesc* content(cublasLtMatmulDesc_t handle) { return held<MatmulDesc>(handle); }
const MatrixLayout* content(cublasLtMatrixLayout_t handle) { return held<MatrixLayout>(handle); }
const Preference* content(cublasLtMatmulPreference_t handle) { return held<Preference>(handle); }

cublasStatus_t set_attribute(const char* function, void* holder, const Attribute* attribute,
                             const void* value, std::size_t size) {
  const auto no = [&](const std::string& why) {
    return refuse(function, CUBLAS_STATUS_INVALID_VALUE, why);
  };
  if (holder == nullptr) return no("the descriptor is null or not initialised");
  if (attribute == nullptr) return no("there is no such attribute");
  if (value == nullptr || size != attribute->size) {
    return no(fmt::format("attribute {} has {} bytes, {} {} given", attribute->name,
                          attribute->size, size, value == nullptr ? "at null" : "were"));
  }
  std::memcpy(static_cast<char*>(holder) + attribute->offset, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get_attribute(const char* function, const void* holder, const Attribute* attribute,
                             Bytes value, std::size_t* written) {
  const auto no = [&](const std::string& why) {
    return refuse(function, CUBLAS_STATUS_INVALID_VALUE, why);
  };
  if (holder == nullptr) return no("the descriptor is null or not initialised");
  if (attribute == nullptr) return no("there is no such attribute");
  if (value.size == 0 && written == nullptr) return no("neither a size nor a place for it");
  if (value.size != 0 && (value.at == nullptr || value.size != attribute->size)) {
    return no(fmt::format("attribute {} has {} bytes, room for {} given", attribute->name,
                          attribute->size, value.at == nullptr ? 0 : value.size));
  }
  if (value.size != 0) {
    std::memcpy(value.at, static_cast<const char*>(holder) + attribute->offset, value.size);
  }
  if (written != nullptr) *written = attribute->size;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t refuse(const char* function, cublasStatus_t status, const std::string& why) {
  return emulated::refuse(function, status, cublasLtGetStatusName(status), why);
}

}  // namespace tessera::emulated::cublas

using namespace tessera::emulated::cublas;  // NOLINT: what follows is the API itself

extern "C" {

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute_type,
                                               cudaDataType_t scale_type) {
  MatmulDesc content;
  content.compute_type = compute_type;
  content.scale_type = scale_type;
  return init(__func__, desc, size, content);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                        cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  MatmulDesc content;
  content.compute_type = compute_type;
  content.scale_type = scale_type;
  return create(__func__, desc, content);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy<MatmulDesc>(__func__, desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t size) {
  return set_attribute(__func__, held<MatmulDesc>(desc), find_attribute(kMatmulDesc, name), value,
                       size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name, void* value,
                                              size_t size, size_t* written) {
  return get_attribute(__func__, held<MatmulDesc>(desc), find_attribute(kMatmulDesc, name),
                       {value, size}, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  MatrixLayout content;
  content.type = type, content.rows = rows, content.cols = cols, content.ld = ld;
  return init(__func__, layout, size, content);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  MatrixLayout content;
  content.type = type, content.rows = rows, content.cols = cols, content.ld = ld;
  return create(__func__, layout, content);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<MatrixLayout>(__func__, layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t size) {
  return set_attribute(__func__, held<MatrixLayout>(layout), find_attribute(kMatrixLayout, name),
                       value, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name, void* value,
                                                size_t size, size_t* written) {
  return get_attribute(__func__, held<MatrixLayout>(layout), find_attribute(kMatrixLayout, name),
                       {value, size}, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  return init(__func__, preference, size, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(__func__, preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(__func__, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t size) {
  return set_attribute(__func__, held<Preference>(preference), find_attribute(kPreference, name),
                       value, size);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    void* value, size_t size, size_t* written) {
  return get_attribute(__func__, held<Preference>(preference), find_attribute(kPreference, name),
                       {value, size}, written);
}

}  // extern "C"
