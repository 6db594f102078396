// Names and texts of cuBLAS's statuses, of both its interfaces.

#include <cublasLt.h>
#include <cublas_v2.h>

namespace {

struct Status {
  cublasStatus_t value;
  const char *name, *text;
};
constexpr Status kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the requested functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};

const char* find(cublasStatus_t value, const char* Status::*what) {
  for (const Status& one : kStatuses) {
    if (one.value == value) return one.*what;
  }
  return "unrecognized status";
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) { return find(status, &Status::name); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return find(status, &Status::text); }
const char* cublasGetStatusName(cublasStatus_t status) { return find(status, &Status::name); }
const char* cublasGetStatusString(cublasStatus_t status) { return find(status, &Status::text); }
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion(void) { return CUDART_VERSION; }

}  // extern "C"
