#include "tessera/tensor/cuda/sleep.h"

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/cuda/start.h"

namespace tessera::cuda {
namespace {

constexpr std::uint64_t kLongestNap = 1'000'000;  // of one instruction

__global__ void sleep_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t start = nanoseconds_now();
  for (;;) {
    const std::uint64_t slept = nanoseconds_now() - start;
    if (slept >= nanoseconds) return;
    const std::uint64_t rest = nanoseconds - slept;
    __nanosleep(static_cast<unsigned>(rest < kLongestNap ? rest : kLongestNap));
  }
}

}  // namespace

void launch_sleep(CUstream_st* stream, std::uint64_t nanoseconds) {
  start("stream_sleep", sleep_kernel, {}, stream, nanoseconds);
}

}  // namespace tessera::cuda
