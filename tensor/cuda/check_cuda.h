#pragma once

/// Converts errors of the CUDA runtime to exceptions. Needs no toolkit headers: a cudaError_t is
/// passed as its number.

namespace tessera::cuda {

/// Returns for cudaSuccess. Else throws OutOfMemory or DeviceError with the error's name and text;
/// `where` is the operation under the name that the user calls, `what` the call that failed.
void check_cuda(int code, const char* where, const char* what);

}  // namespace tessera::cuda
