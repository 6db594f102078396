#include "tessera/tensor/kernels/cuda/cublas/cublas_descriptors.h"

#include <algorithm>
#include <bit>

#include "tessera/tensor/kernels/cuda/cublas/cublas_library.h"

namespace tessera::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  check_cublas(status, MatmulKernel::kName, what);
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF64:
      return CUDA_R_64F;
    default:  // plans have floating dtypes only
      return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type(LtCompute compute) {
  switch (compute) {
    case LtCompute::kF32:
      return CUBLAS_COMPUTE_32F;
    case LtCompute::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case LtCompute::kF64:
      return CUBLAS_COMPUTE_64F;
  }
  __builtin_unreachable();
}

cublasLtEpilogue_t epilogue_of(LtEpilogue epilogue) {
  switch (epilogue) {
    case LtEpilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case LtEpilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case LtEpilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU;
    case LtEpilogue::kGeluBias:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case LtEpilogue::kGeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case LtEpilogue::kGeluAuxBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  }
  __builtin_unreachable();
}

// In bytes, up to the 256 that the library may use.
std::uint32_t alignment_of(const void* address) {
  constexpr int kMostBits = 8;
  return std::uint32_t{1} << std::min(kMostBits,
                                      std::countr_zero(reinterpret_cast<std::uintptr_t>(address)));
}

}  // namespace

LtLayout layout_of(const LtMatrix& matrix, std::int64_t batch) {
  LtLayout layout;
  check(
      cublaslt().cublasLtMatrixLayoutInit_internal(
          &layout, sizeof(layout), data_type(matrix.dtype), static_cast<std::uint64_t>(matrix.rows),
          static_cast<std::uint64_t>(matrix.columns), matrix.leading),
      "cublasLtMatrixLayoutInit");
  if (batch == 1) return layout;
  const auto count = static_cast<std::int32_t>(batch);
  check(cublaslt().cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &count, sizeof(count)),
        "cublasLtMatrixLayoutSetAttribute");
  check(cublaslt().cublasLtMatrixLayoutSetAttribute(
            &layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batch_stride,
            sizeof(matrix.batch_stride)),
        "cublasLtMatrixLayoutSetAttribute");
  return layout;
}

LtKey key_of(const LtProduct& product, const LtOperands& operands, Workspace workspace) {
  const auto used = [](bool is_used, const void* address) {
    return is_used ? alignment_of(address) : 0;
  };
  return {
      .product = product,
      .alignment = {alignment_of(operands.first), alignment_of(operands.second),
                    alignment_of(operands.result), used(has_bias(product.epilogue), operands.bias),
                    used(has_aux(product.epilogue), operands.aux)},
      .workspace = workspace.bytes};
}

LtOperation::LtOperation(const LtProduct& product, const LtOperands& operands)
    : in_f64_(product.compute == LtCompute::kF64) {
  check(
      cublaslt().cublasLtMatmulDescInit_internal(
          &desc_, sizeof(desc_), compute_type(product.compute), in_f64_ ? CUDA_R_64F : CUDA_R_32F),
      "cublasLtMatmulDescInit");
  if (product.first_transposed) set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T});
  if (product.second_transposed) set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_T});
  if (product.epilogue == LtEpilogue::kNone) return;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue_of(product.epilogue)));
  if (has_bias(product.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (!has_aux(product.epilogue)) return;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.aux_leading);
  if (product.batch > 1)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, product.aux_batch_stride);
}

template <class T>
void LtOperation::set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublaslt().cublasLtMatmulDescSetAttribute(&desc_, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}

namespace {

class Preference {
 public:
  Preference(const LtKey& key, std::uint32_t reductions) {
    check(cublaslt().cublasLtMatmulPreferenceInit_internal(&preference_, sizeof(preference_)),
          "cublasLtMatmulPreferenceInit");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(key.workspace));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[2]);
  }
  cublasLtMatmulPreference_t get() { return &preference_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublaslt().cublasLtMatmulPreferenceSetAttribute(&preference_, attribute, &value,
                                                          sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreferenceOpaque_t preference_;
};

}  // namespace

std::vector<LtAlgorithm> propose(cublasLtHandle_t handle, const LtKey& key, LtOperation& operation,
                                 const LtSearch& search) {
  LtAlgorithm layouts{.first = layout_of(key.product.first, key.product.batch),
                      .second = layout_of(key.product.second, key.product.batch),
                      .result = layout_of(key.product.result, key.product.batch),
                      .algorithm = {}};
  Preference preference(key, search.reductions);
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(static_cast<std::size_t>(search.most));
  int count = 0;
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoGetHeuristic(
      handle, operation.get(), &layouts.first, &layouts.second, &layouts.result, &layouts.result,
      preference.get(), search.most, proposals.data(), &count);
  std::vector<LtAlgorithm> found;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return found;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  proposals.resize(static_cast<std::size_t>(count));
  for (const cublasLtMatmulHeuristicResult_t& proposal : proposals) {
    if (proposal.state != CUBLAS_STATUS_SUCCESS || proposal.workspaceSize > key.workspace) continue;
    found.push_back(layouts);
    found.back().algorithm = proposal.algo;
  }
  return found;
}

int splits_of(const LtAlgorithm& algorithm) {
  std::int32_t splits = 1;
  std::size_t written = 0;
  check(
      cublaslt().cublasLtMatmulAlgoConfigGetAttribute(
          &algorithm.algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits), &written),
      "cublasLtMatmulAlgoConfigGetAttribute");
  return std::max(splits, 1);
}

void multiply(cublasLtHandle_t handle, CudaStream stream, const LtAlgorithm& algorithm,
              LtOperation& operation, const LtOperands& operands, Workspace workspace) {
  const float alpha = static_cast<float>(operands.alpha), beta = static_cast<float>(operands.beta);
  const bool f64 = operation.in_f64();
  // The library takes descriptors by non-const address but does not change them.
  auto& layouts = const_cast<LtAlgorithm&>(algorithm);
  check(cublaslt().cublasLtMatmul(
            handle, operation.get(), f64 ? static_cast<const void*>(&operands.alpha) : &alpha,
            operands.first, &layouts.first, operands.second, &layouts.second,
            f64 ? static_cast<const void*>(&operands.beta) : &beta, operands.result,
            &layouts.result, operands.result, &layouts.result, &algorithm.algorithm, workspace.data,
            workspace.bytes, stream),
        "cublasLtMatmul");
}

}  // namespace tessera::cuda
