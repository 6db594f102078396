// cublasLtMatmul of the emulated GPU: the checks of a call, then the product in stream order.

#include <fmt/core.h>

#include <cstring>

#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_compute.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::cublas {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

bool multiple(const void* at, std::size_t of) {
  return reinterpret_cast<std::uintptr_t>(at) % of == 0;
}

Verdict check_pointer(const char* name, const void* at, std::size_t alignment, std::size_t bytes) {
  if (at == nullptr) return {CUBLAS_STATUS_INVALID_VALUE, fmt::format("{} is null", name)};
  if (!multiple(at, alignment)) {
    return {CUBLAS_STATUS_NOT_SUPPORTED,
            fmt::format("{} at {} is no multiple of the {} bytes that the algorithm was chosen for",
                        name, at, alignment)};
  }
  if (!is_device_memory(at, bytes)) {
    return {CUBLAS_STATUS_EXECUTION_FAILED,
            fmt::format("{}: {} bytes at {} are no memory of the GPU", name, bytes, at)};
  }
  return {};
}

Verdict check_matrices(const Product& x) {
  const Problem& p = x.problem;
  const struct {
    const char* name;
    const void* at;
    const MatrixLayout& layout;
  } matrices[] = {{"A", x.a, p.a}, {"B", x.b, p.b}, {"C", x.c, p.c}, {"D", x.d, p.d}};
  for (const auto& one : matrices) {
    const std::size_t element = size_of(one.layout.type);
    if (!multiple(one.at, element)) {
      return {CUBLAS_STATUS_INVALID_VALUE,
              fmt::format("{} at {} cuts its elements of {} bytes", one.name, one.at, element)};
    }
    Verdict v = check_pointer(one.name, one.at, pointer_alignment(x.algorithm, one.layout),
                              extent_bytes(one.layout));
    if (!v.ok()) return v;
  }
  const bool same = p.c.ld == p.d.ld && p.c.batch_stride == p.d.batch_stride;
  if (x.c == x.d && !same && p.n * p.batch > 1) {
    return {CUBLAS_STATUS_INVALID_VALUE, "C and D are one matrix with two layouts"};
  }
  return {};
}

Verdict check_vectors(const Product& x) {
  const Problem& p = x.problem;
  const Epilogue e = epilogue_of(p.op.epilogue);
  const std::size_t element = size_of(p.d.type);
  if (e.bias) {
    const std::size_t alignment = std::max<std::size_t>(x.algorithm.bias_alignment, element);
    Verdict v = check_pointer("the bias", p.op.bias, alignment, p.m * element);
    if (!v.ok()) return v;
  }
  if (!e.aux) return {};
  const std::int64_t elements =
      (p.batch - 1) * p.op.aux_batch_stride + (p.n - 1) * p.op.aux_ld + p.m;
  return check_pointer("the auxiliary matrix", p.op.aux, x.algorithm.aux_alignment,
                       elements * element);
}

Verdict check_workspace(const Product& x, std::size_t given) {
  const std::size_t needed = workspace_bytes(x.algorithm, x.problem);
  if (!multiple(x.workspace, kWorkspaceAlignment)) {
    return {CUBLAS_STATUS_INVALID_VALUE, fmt::format("the workspace at {} is no multiple of {}",
                                                     x.workspace, kWorkspaceAlignment)};
  }
  if (given < needed || (needed != 0 && x.workspace == nullptr)) {
    return {CUBLAS_STATUS_INVALID_VALUE,
            fmt::format("{} bytes of workspace given, the algorithm needs {}", given, needed)};
  }
  if (x.workspace == nullptr || given == 0) return {};
  return check_pointer("the workspace", x.workspace, kWorkspaceAlignment, given);
}

Verdict read_scalars(Product& x, const void* alpha, const void* beta) {
  if (alpha == nullptr || beta == nullptr) {
    return {CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is null"};
  }
  const auto read = [&](const void* at) {
    if (in_f64(x.problem)) return *static_cast<const double*>(at);
    return static_cast<double>(*static_cast<const float*>(at));
  };
  x.alpha = read(alpha), x.beta = read(beta);
  return {};
}

Verdict check(Product& x, const void* alpha, const void* beta, std::size_t workspace) {
  if (Verdict v = check_algorithm(x.algorithm, x.problem); !v.ok()) return v;
  if (Verdict v = check_matrices(x); !v.ok()) return v;
  if (Verdict v = check_vectors(x); !v.ok()) return v;
  if (Verdict v = check_workspace(x, workspace); !v.ok()) return v;
  return read_scalars(x, alpha, beta);
}

}  // namespace
}  // namespace tessera::emulated::cublas

using namespace tessera::emulated::cublas;  // NOLINT: what follows is the API itself

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                         const void* alpha, const void* a,
                                         cublasLtMatrixLayout_t a_layout, const void* b,
                                         cublasLtMatrixLayout_t b_layout, const void* beta,
                                         const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                         cublasLtMatrixLayout_t d_layout,
                                         const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                         size_t workspace_size, cudaStream_t stream) {
  const Handle* context = check_handle(__func__, handle);
  if (context == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  int device = -1;
  if (cudaStreamGetDevice(stream, &device) != cudaSuccess || device != context->device) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "the stream is another GPU's");
  }
  const auto [problem, verdict] = read_problem(op, {a_layout, b_layout, c_layout, d_layout});
  if (!verdict.ok()) return refuse(__func__, verdict.status, verdict.why);
  const Algorithm* chosen = content(algorithm);
  if (algorithm != nullptr && chosen == nullptr) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "the algorithm was never initialised");
  }
  Product product{.problem = problem,
                  .algorithm = chosen == nullptr ? default_algorithm(problem) : *chosen,
                  .a = a,
                  .b = b,
                  .c = c,
                  .d = d,
                  .workspace = workspace};
  if (const Verdict v = check(product, alpha, beta, workspace_size); !v.ok()) {
    return refuse(__func__, v.status, v.why);
  }
  // What the algorithm does not use of the workspace is its to spoil as well.
  const auto call = [product, workspace_size] {
    if (product.workspace != nullptr) std::memset(product.workspace, 0xff, workspace_size);
    compute(product);
  };
  const cudaError_t error = tessera::emulated::issue_work(stream, call);
  if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return refuse(__func__, CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}
