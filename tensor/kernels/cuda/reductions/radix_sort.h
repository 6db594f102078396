#pragma once

/// Sorts lines of records by key, stably, as described in sort_plan.h. For .cu files.
///
/// A Record is a std::uint64_t, the key in its upper half, or a WideRecord.

#include <cstdint>
#include <utility>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/cuda/start.h"
#include "tessera/tensor/kernels/plans/sort_plan.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cuda {

struct alignas(16) WideRecord {
  std::uint64_t key;
  std::uint64_t position;
};

__device__ inline int radix_digit(std::uint64_t record, int shift) {
  return static_cast<int>(record >> (32 + shift)) & (RadixPlan::kDigits - 1);
}
__device__ inline int radix_digit(const WideRecord& record, int shift) {
  return static_cast<int>(record.key >> shift) & (RadixPlan::kDigits - 1);
}

/// The parameters of a pass. A block takes tile blockIdx.x of line blockIdx.y.
struct RadixPass {
  const void* from;
  void* to;
  std::uint32_t* counts;  ///< [lines, digits, tiles]
  std::uint32_t* totals;  ///< [lines, digits]
  std::int64_t length;
  std::int64_t chunk;
  std::int64_t tiles;
  int shift;

  __device__ std::int64_t begin() const { return blockIdx.x * chunk; }
  __device__ std::int64_t end() const {
    const std::int64_t end = begin() + chunk;
    return end < length ? end : length;
  }
  __device__ std::uint32_t& count(int digit) const {
    return counts[(blockIdx.y * std::int64_t{RadixPlan::kDigits} + digit) * tiles + blockIdx.x];
  }
};

/// The inclusive prefix sum of `value` over the warp's lanes.
__device__ inline std::uint32_t warp_sum_through(std::uint32_t value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const std::uint32_t before = __shfl_up_sync(kWholeWarp, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

/// The exclusive prefix sum of `value` over the block's threads. May be called once in a kernel.
__device__ inline std::uint32_t block_sum_before(std::uint32_t value) {
  __shared__ std::uint32_t warps[kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  std::uint32_t sum = warp_sum_through(value);
  if (lane == kWarpSize - 1) warps[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warps[w];
  return sum - value;
}

template <class Record>
__global__ void radix_count_kernel(const RadixPass pass) {
  __shared__ std::uint32_t digits[RadixPlan::kDigits];
  const auto thread = static_cast<int>(threadIdx.x);
  digits[thread] = 0;
  __syncthreads();
  const Record* from = static_cast<const Record*>(pass.from) + blockIdx.y * pass.length;
  for (std::int64_t i = pass.begin() + thread; i < pass.end(); i += blockDim.x)
    atomicAdd(&digits[radix_digit(from[i], pass.shift)], 1u);
  __syncthreads();
  pass.count(thread) = digits[thread];
}

/// One warp for each line and digit: turns the counts of its tiles into exclusive prefix sums. A
/// lane has adjacent tiles.
template <class Record>
__global__ void radix_sum_kernel(const RadixPass pass) {
  const std::int64_t row = (blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x) / kWarpSize;
  const auto lane = static_cast<int>(threadIdx.x) % kWarpSize;
  std::uint32_t* counts = pass.counts + row * pass.tiles;
  const std::int64_t each = (pass.tiles + kWarpSize - 1) / kWarpSize, begin = lane * each,
                     end = begin + each < pass.tiles ? begin + each : pass.tiles;
  std::uint32_t own = 0;
  for (std::int64_t tile = begin; tile < end; ++tile) own += counts[tile];
  const std::uint32_t through = warp_sum_through(own);
  std::uint32_t before = through - own;
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const std::uint32_t count = counts[tile];
    counts[tile] = before;
    before += count;
  }
  if (lane == kWarpSize - 1) pass.totals[row] = through;
}

/// The lanes of the warp with the same digit; a lane without a record gets none.
__device__ inline unsigned lanes_alike(int digit, bool has_record) {
  unsigned alike = __ballot_sync(kWholeWarp, has_record);
#pragma unroll
  for (int bit = 0; bit < RadixPlan::kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned lanes = __ballot_sync(kWholeWarp, set);
    alike &= set ? lanes : ~lanes;
  }
  return alike;
}

template <class Record>
__global__ void radix_move_kernel(const RadixPass pass) {
  constexpr int kWarps = RadixPlan::kThreads / kWarpSize;
  __shared__ std::uint32_t starts[kWarps][RadixPlan::kDigits];  // of a warp's records of a digit
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize, warp = thread / kWarpSize;
  // For the thread of a digit: the position of its next record of this tile.
  std::uint32_t next =
      block_sum_before(pass.totals[blockIdx.y * RadixPlan::kDigits + thread]) + pass.count(thread);
  const Record* from = static_cast<const Record*>(pass.from) + blockIdx.y * pass.length;
  Record* to = static_cast<Record*>(pass.to) + blockIdx.y * pass.length;
  for (std::int64_t first = pass.begin(); first < pass.end(); first += RadixPlan::kThreads) {
    for (int w = 0; w < kWarps; ++w) starts[w][thread] = 0;
    const bool has_record = first + thread < pass.end();
    const Record record = has_record ? from[first + thread] : Record{};
    const int digit = radix_digit(record, pass.shift);
    const unsigned alike = lanes_alike(digit, has_record);
    const int rank = __popc(alike & ((1u << lane) - 1));
    __syncthreads();
    if (has_record && rank == 0) starts[warp][digit] = static_cast<std::uint32_t>(__popc(alike));
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      const std::uint32_t count = starts[w][thread];
      starts[w][thread] = next;
      next += count;
    }
    __syncthreads();
    if (has_record) to[starts[warp][digit] + static_cast<std::uint32_t>(rank)] = record;
    __syncthreads();
  }
}

/// The parts of a plan's scratch.
struct RadixScratch {
  RadixScratch(const RadixPlan& plan, Workspace scratch)
      : records(scratch.data),
        other(static_cast<char*>(scratch.data) + plan.buffer_bytes()),
        counts(reinterpret_cast<std::uint32_t*>(static_cast<char*>(other) + plan.buffer_bytes())),
        totals(counts + plan.count_bytes() / sizeof(std::uint32_t)) {}

  void* records;  ///< the caller writes the records here
  void* other;
  std::uint32_t* counts;
  std::uint32_t* totals;
};

/// Sorts scratch.records; returns the address of the sorted records.
template <class Record>
const Record* radix_sort(const char* name, CudaStream stream, const RadixPlan& plan,
                         const RadixScratch& scratch) {
  RadixPass pass{.from = scratch.records,
                 .to = scratch.other,
                 .counts = scratch.counts,
                 .totals = scratch.totals,
                 .length = plan.length,
                 .chunk = plan.chunk(),
                 .tiles = plan.tiles(),
                 .shift = 0};
  const auto lines = static_cast<unsigned>(plan.lines);
  const Grid tiles{.blocks = dim3(static_cast<unsigned>(pass.tiles), lines),
                   .threads = RadixPlan::kThreads};
  const Grid digits{.blocks = lines * RadixPlan::kDigits * kWarpSize / RadixPlan::kThreads,
                    .threads = RadixPlan::kThreads};
  for (int p = 0; p < plan.passes; ++p, pass.shift += RadixPlan::kDigitBits) {
    start(name, radix_count_kernel<Record>, tiles, stream, pass);
    start(name, radix_sum_kernel<Record>, digits, stream, pass);
    start(name, radix_move_kernel<Record>, tiles, stream, pass);
    void* sorted = pass.to;
    pass.to = const_cast<void*>(pass.from);
    pass.from = sorted;
  }
  return static_cast<const Record*>(pass.from);
}

}  // namespace tessera::cuda
