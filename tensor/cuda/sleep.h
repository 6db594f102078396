#pragma once

/// A kernel that only takes time. Private to this folder.

#include <cstdint>

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

void launch_sleep(CUstream_st* stream, std::uint64_t nanoseconds);

}  // namespace tessera::cuda
