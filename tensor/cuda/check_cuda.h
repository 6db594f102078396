#pragma once

/// Errors of the CUDA runtime as exceptions. Without the toolkit's headers: a cudaError_t passes as
/// the number it is.

namespace tessera::cuda {

/// Nothing for cudaSuccess. Else throws OutOfMemory or DeviceError with the error's name and text;
/// `where` is the operation as the user calls it, `what` the call that failed.
void check_cuda(int code, const char* where, const char* what);

}  // namespace tessera::cuda
