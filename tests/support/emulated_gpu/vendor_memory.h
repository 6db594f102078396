#pragma once

/// Whether the emulated GPU may touch what a library is given.

#include <cstddef>

namespace tessera::emulated {

/// Whether these bytes lie in one allocation of the CUDA runtime that is alive as the host sees it:
/// memory of any GPU, or pinned memory of the host.
bool is_device_memory(const void* at, std::size_t bytes);

}  // namespace tessera::emulated
