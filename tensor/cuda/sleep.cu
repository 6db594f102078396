#include "tessera/tensor/cuda/sleep.h"

namespace tessera::cuda {
namespace {

constexpr std::uint64_t kLongestNap = 1'000'000;  // of one instruction

__device__ std::uint64_t nanoseconds_now() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

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
  sleep_kernel<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace tessera::cuda
