#pragma once

/// Runs the threads of a CUDA kernel on the CPU, one block after another, to test the results of
/// kernels without a GPU.
///
/// Each thread of a block is a fiber of the calling host thread, so barriers and shuffles behave as
/// on a GPU, and `static thread_local` is memory that the block shares. Fibers run in an order that
/// differs from block to block, until each waits or ends: a missing barrier gives wrong numbers. If
/// some threads of the block never reach a barrier, that is an error that names the kernel; a GPU
/// would hang.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace tessera::emulated {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

struct Launch {
  Index3 grid, block;
  std::size_t shared_bytes = 0;
  const void* function = nullptr;  ///< the kernel, where it is known
};

/// Threads of a block wait for others that never come.
class KernelHang : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Why no GPU takes such a launch; null where one does.
const char* launch_problem(const Launch& launch);
/// Runs `body` once for each thread of the launch, on this host thread. Throws std::runtime_error
/// for launches that no GPU accepts, and KernelHang.
void run_grid(const Launch& launch, const char* kernel, const std::function<void()>& body);

/// The dynamic shared memory of the running block; 16-byte aligned.
void* dynamic_shared_memory();

/// __syncthreads, with what the variants of it return: over all threads of the block.
struct BarrierVotes {
  int count = 0;  ///< threads that gave true
  int threads = 0;
};
BarrierVotes synchronize_block(bool vote);

/// All 32 lanes of a warp give 8 bytes and see those of all lanes, until they exchange again. Every
/// lane must take part.
struct WarpValues {
  std::uint64_t lane[32];
};
const WarpValues& exchange_in_warp(std::uint64_t value);
/// The running fiber's number in its warp.
unsigned lane_index();

}  // namespace tessera::emulated

/// Where the running fiber stands: CUDA's own names.
extern constinit thread_local tessera::emulated::Index3 threadIdx, blockIdx, blockDim, gridDim;
