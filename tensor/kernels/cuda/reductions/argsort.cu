#include "tessera/tensor/kernels/order.h"

#include <bit>
#include <span>
#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/bitonic.h"
#include "tessera/tensor/kernels/cuda/reductions/radix_sort.h"
#include "tessera/tensor/kernels/math/sort_key.h"
#include "tessera/tensor/kernels/plans/sort_plan.h"

namespace tessera {
namespace {

using cuda::WideRecord;

__device__ bool before(std::uint64_t a, std::uint64_t b) { return a < b; }
__device__ bool before(const WideRecord& a, const WideRecord& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
}
__device__ std::int64_t position_of(std::uint64_t record) {
  return static_cast<std::uint32_t>(record);
}
__device__ std::int64_t position_of(const WideRecord& record) {
  return static_cast<std::int64_t>(record.position);
}

// Lines of x and y, and the dim that is sorted.
struct Work {
  const void* x;
  DType dtype;
  bool descending;
  std::int64_t* y;
  cuda::Walk<2> lines_walk;  // of x and y
  std::int64_t lines;
  std::int64_t length;
  std::int64_t kept;  // positions stored for each line
  std::int64_t x_step;
  std::int64_t y_step;

  template <class Record>
  __device__ Record record(std::int64_t line, std::int64_t position) const {
    const std::int64_t at = cuda::offset_at(lines_walk, 0, line) + position * x_step;
    if constexpr (std::is_same_v<Record, WideRecord>) {
      const std::uint64_t key = dtype == DType::kF64
                                    ? sort_key(static_cast<const double*>(x)[at])
                                    : sort_key(static_cast<const std::int64_t*>(x)[at]);
      return {descending ? ~key : key, static_cast<std::uint64_t>(position)};
    } else {
      const std::uint32_t key =
          is_floating(dtype)
              ? sort_key(cuda::load_element<float>(x, dtype, at))
              : sort_key(static_cast<std::int32_t>(cuda::load_element<std::int64_t>(x, dtype, at)));
      return static_cast<std::uint64_t>(descending ? ~key : key) << 32 |
             static_cast<std::uint64_t>(position);
    }
  }
  __device__ void store(std::int64_t line, std::int64_t place, std::int64_t position) const {
    y[cuda::offset_at(lines_walk, 1, line) + place * y_step] = position;
  }
};

template <class Record>
__device__ Record last_record() {
  if constexpr (std::is_same_v<Record, WideRecord>) {
    return {~std::uint64_t{0}, ~std::uint64_t{0}};
  } else {
    return ~std::uint64_t{0};
  }
}

// ---- short lines: bitonic, several in a block ---------------------------------------------------

constexpr int kBlockElements = ArgsortPlan::kBlockElements;

// Lines are padded to 1 << log2 elements with a record that sorts last.
template <class Record>
__global__ void __launch_bounds__(cuda::kThreads)
    blocks_kernel(const __grid_constant__ Work work, int log2) {
  __shared__ Record records[kBlockElements];
  const int length = 1 << log2, thread = static_cast<int>(threadIdx.x);
  const std::int64_t first_line = blockIdx.x * std::int64_t{kBlockElements >> log2};
  for (int i = thread; i < kBlockElements; i += cuda::kThreads) {
    const std::int64_t line = first_line + (i >> log2);
    const int position = i & (length - 1);
    records[i] = line < work.lines && position < work.length ? work.record<Record>(line, position)
                                                             : last_record<Record>();
  }
  for (int block = 2; block <= length; block *= 2) {
    for (int distance = block / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int number = thread; number < kBlockElements / 2; number += cuda::kThreads) {
        const cuda::BitonicPair pair = cuda::bitonic_pair(number, length, block, distance);
        Record &a = records[pair.first], &b = records[pair.first + distance];
        if (before(b, a) != pair.ascending) continue;
        const Record kept = a;
        a = b;
        b = kept;
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < kBlockElements; i += cuda::kThreads) {
    const std::int64_t line = first_line + (i >> log2);
    const int place = i & (length - 1);
    if (line < work.lines && place < work.kept) work.store(line, place, position_of(records[i]));
  }
}

template <class Record>
void sort_in_blocks(CudaStream stream, const Work& work) {
  const int log2 = std::bit_width(static_cast<std::uint64_t>(work.length - 1));
  const std::int64_t lines = kBlockElements >> log2;
  cuda::start(ArgsortKernel::kName, blocks_kernel<Record>,
              {.blocks = static_cast<unsigned>((work.lines + lines - 1) / lines),
               .threads = cuda::kThreads},
              stream, work, log2);
}

// ---- long lines: radix sort ---------------------------------------------------------------------

// Element i of a round, whose first line is `first_line`.
template <class Record>
__global__ void records_kernel(const __grid_constant__ Work work, std::int64_t first_line,
                               std::int64_t n, Record* records) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    const std::int64_t line = i / work.length;
    records[i] = work.record<Record>(first_line + line, i - line * work.length);
  });
}

template <class Record>
__global__ void positions_kernel(const __grid_constant__ Work work, std::int64_t first_line,
                                 std::int64_t n, const Record* records) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    const std::int64_t line = i / work.kept, place = i - line * work.kept;
    work.store(first_line + line, place, position_of(records[line * work.length + place]));
  });
}

template <class Record>
void sort_by_digits(CudaStream stream, const Work& work, const ArgsortPlan& plan,
                    Workspace scratch) {
  const std::int64_t round = plan.round_lines();
  for (std::int64_t first = 0; first < work.lines; first += round) {
    const std::int64_t lines = std::min(round, work.lines - first);
    const RadixPlan radix = plan.radix(lines);
    const cuda::RadixScratch sorting(radix, scratch);
    const std::int64_t elements = lines * work.length, kept = lines * work.kept;
    cuda::start(ArgsortKernel::kName, records_kernel<Record>, cuda::grid_for(elements), stream,
                work, first, elements, static_cast<Record*>(sorting.records));
    const Record* sorted = cuda::radix_sort<Record>(ArgsortKernel::kName, stream, radix, sorting);
    cuda::start(ArgsortKernel::kName, positions_kernel<Record>, cuda::grid_for(kept), stream, work,
                first, kept, sorted);
  }
}

// Without the sorted dim.
Shape leading(const Shape& list) {
  return Shape(std::span(list.begin(), static_cast<std::size_t>(list.ndim() - 1)));
}

}  // namespace

void ArgsortKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  const int last = a.x.shape.ndim() - 1;
  const std::int64_t kept = a.y.shape[last];
  const ArgsortPlan plan = argsort_plan(a);
  if (plan.lines == 0 || kept == 0) return;
  const Work work{.x = a.x.data,
                  .dtype = a.x.dtype,
                  .descending = a.descending,
                  .y = a.y.as<std::int64_t>(),
                  .lines_walk = cuda::make_walk<2>(leading(a.x.shape),
                                                   {leading(a.x.strides), leading(a.y.strides)}),
                  .lines = plan.lines,
                  .length = plan.length,
                  .kept = kept,
                  .x_step = a.x.strides[last],
                  .y_step = a.y.strides[last]};
  const auto sort = [&]<class Record>() {
    plan.in_blocks ? sort_in_blocks<Record>(stream, work)
                   : sort_by_digits<Record>(stream, work, plan, scratch);
  };
  plan.wide_keys ? sort.template operator()<WideRecord>()
                 : sort.template operator()<std::uint64_t>();
}

}  // namespace tessera
