#include "tessera/tensor/kernels/indexing.h"

#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/index_dims.h"
#include "tessera/tensor/kernels/cuda/elementwise/index_units.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/radix_sort.h"
#include "tessera/tensor/kernels/plans/scatter_plan.h"

namespace tessera {
namespace {

// Lines along the indexed dim: element j of line i is j steps from the offset of i in `dims`.
struct Lines {
  cuda::IndexSource index;
  cuda::IndexDims dims;
  std::int64_t count;
  std::int64_t index_step;
  std::int64_t position_step;
  std::int64_t skip;
  cuda::FaultReporter faults;
  int dim;

  // Whether the element is moved; reports a fault for an index out of range.
  __device__ bool takes(std::int64_t value, std::int64_t line, std::int64_t j) const {
    if (index.has(value)) return index.from_front(value) != skip;
    const std::int64_t position = cuda::position_of(dims, line) + j * position_step;
    cuda::report_fault(faults, value, position, index.extent, dim);
    return false;
  }
};

// Elements of one type, or packs of them; `a` is the present value. Integers wrap around.
template <class T>
__device__ T combined(ScatterMode mode, const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (mode) {
      case ScatterMode::kAssign:
        return b;
      case ScatterMode::kAdd:
        return a + b;
      case ScatterMode::kMultiply:
        return a * b;
      case ScatterMode::kMaximum:
        return b > a || b != b ? b : a;
      case ScatterMode::kMinimum:
        return b < a || b != b ? b : a;
    }
    return a;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    switch (mode) {
      case ScatterMode::kAssign:
        return b;
      case ScatterMode::kAdd:
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case ScatterMode::kMultiply:
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      case ScatterMode::kMaximum:
        return b > a ? b : a;
      case ScatterMode::kMinimum:
        return b < a ? b : a;
    }
    return a;
  } else {
    T out = a;
#pragma unroll
    for (int i = 0; i < T::kCount; ++i) out.values[i] = combined(mode, out.values[i], b.values[i]);
    return out;
  }
}

// body.template operator()<T>() for the dtypes that values are folded in.
template <class Body>
void with_folded_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI64:
      return body.template operator()<std::int64_t>();
    case DType::kI32:
      return body.template operator()<std::int32_t>();
    case DType::kU8:
      return body.template operator()<std::uint8_t>();
    case DType::kBF16:
    case DType::kF16:
    case DType::kBool:
      return;
  }
}

// ---- short lines, or many: one thread per line --------------------------------------------------

// All strides count elements.
struct LinesWork {
  Lines lines;
  const void* src;
  void* y;
  std::int64_t src_step;
  std::int64_t stride;
};

template <class T>
__global__ void lines_kernel(const __grid_constant__ LinesWork work, std::int64_t lines,
                             ScatterMode mode) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), lines, [&](std::int64_t line) {
    const cuda::IndexPlace at = cuda::place_of(work.lines.dims, line);
    const T* from = static_cast<const T*>(work.src) + at.other;
    T* to = static_cast<T*>(work.y) + at.indexed;
    for (std::int64_t j = 0; j < work.lines.count; ++j) {
      const std::int64_t index = work.lines.index.at(at.index + j * work.lines.index_step);
      if (!work.lines.takes(index, line, j)) continue;
      T& place = to[work.lines.index.from_front(index) * work.stride];
      const T value = from[j * work.src_step];
      place = mode == ScatterMode::kAssign ? value : combined(mode, place, value);
    }
  });
}

// ---- long lines: sorted -------------------------------------------------------------------------

// A record for each index: its destination in the upper half, and the number of its element.
__global__ void keys_kernel(const __grid_constant__ Lines lines, std::int64_t items,
                            std::int64_t no_key, std::uint64_t* records) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), items, [&](std::int64_t item) {
    const std::int64_t line = item / lines.count, j = item - line * lines.count;
    const std::int64_t index =
        lines.index.at(cuda::place_of(lines.dims, line).index + j * lines.index_step);
    const std::int64_t key = lines.takes(index, line, j)
                                 ? line * lines.index.extent + lines.index.from_front(index)
                                 : no_key;
    records[item] = static_cast<std::uint64_t>(key) << 32 | static_cast<std::uint64_t>(item);
  });
}

// Sorted records, and the elements that each moves: `units` units at the offsets of `inner`. All
// strides count units.
struct SortedWork {
  const std::uint64_t* records;
  std::int64_t items;
  std::int64_t no_key;
  std::int64_t extent;
  std::int64_t count;
  cuda::IndexDims lines;
  cuda::IndexDims inner;
  std::int64_t units;
  cuda::RowGroups groups;
  const void* src;
  void* y;
  std::int64_t src_step;
  std::int64_t stride;

  __device__ std::int64_t key(std::int64_t item) const {
    return item < 0 || item >= items ? -1 : static_cast<std::int64_t>(records[item] >> 32);
  }
};

// Calls body(item, key, to, from) for this thread's unit of a task if `chosen(item, key)`; `from`
// is the unit's address in element 0 of the line.
template <class U, class Chosen, class Body>
__device__ void for_unit(const SortedWork& work, const Chosen& chosen, const Body& body) {
  const cuda::RowGroups& groups = work.groups;
  const int lane = static_cast<int>(threadIdx.x) & (groups.lanes() - 1);
  cuda::share(cuda::thread_index() >> groups.lanes_log2, cuda::thread_count() >> groups.lanes_log2,
              work.items * groups.slices, [&](std::int64_t task) {
                const std::int64_t item = groups.slices == 1 ? task : task / groups.slices;
                const std::int64_t key = work.key(item);
                if (key == work.no_key || !chosen(item, key)) return;
                const std::int64_t unit = (task - item * groups.slices) * groups.lanes() + lane;
                if (unit >= work.units) return;
                const std::int64_t line = key / work.extent;
                const cuda::IndexPlace begin = cuda::place_of(work.lines, line),
                                       inner = cuda::place_of(work.inner, unit);
                const std::int64_t index = key - line * work.extent;
                body(item, key,
                     static_cast<U*>(work.y) + begin.indexed + inner.indexed + index * work.stride,
                     static_cast<const U*>(work.src) + begin.other + inner.other -
                         line * work.count * work.src_step);
              });
}

// The first record of a destination folds all of them, in their order.
template <class U>
__global__ void fold_kernel(const __grid_constant__ SortedWork work, ScatterMode mode) {
  constexpr int kAhead = 8;  // loads in flight
  const auto is_first = [&](std::int64_t item, std::int64_t key) {
    return work.key(item - 1) != key;
  };
  for_unit<U>(work, is_first, [&](std::int64_t item, std::int64_t key, U* to, const U* from) {
    U total = *to;
    for (int found = kAhead; found == kAhead; item += kAhead) {
      U values[kAhead];
      found = 0;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (work.key(item + k) != key) continue;  // so are all later ones
        const auto element = static_cast<std::uint32_t>(work.records[item + k]);
        values[k] = from[element * work.src_step];
        found = k + 1;
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (k < found) total = combined(mode, total, values[k]);
      }
    }
    *to = total;
  });
}

// The last record of a destination stays.
template <class U>
__global__ void assign_kernel(const __grid_constant__ SortedWork work) {
  const auto is_last = [&](std::int64_t item, std::int64_t key) {
    return work.key(item + 1) != key;
  };
  for_unit<U>(work, is_last, [&](std::int64_t item, std::int64_t, U* to, const U* from) {
    *to = from[static_cast<std::uint32_t>(work.records[item]) * work.src_step];
  });
}

// ---- from arguments to launches -----------------------------------------------------------------

Lines lines_of(CudaStream stream, const ScatterKernel::Args& a) {
  const int dim = a.walk.dim;
  const cuda::IndexDims indexed = cuda::index_dims(a.walk, [&](int d) { return d == dim; });
  return {.index = cuda::index_source(a.index, a.walk),
          .dims = {},
          .count = a.walk.shape[dim],
          .index_step = a.walk.index[dim],
          .position_step = indexed.position[0],
          .skip = a.skip,
          .faults = cuda::index_faults(stream, a.bad_index),
          .dim = a.walk.named_dim};
}

void walk_lines(CudaStream stream, const ScatterKernel::Args& a) {
  LinesWork work{.lines = lines_of(stream, a),
                 .src = a.src.data,
                 .y = a.y.data,
                 .src_step = a.walk.other[a.walk.dim],
                 .stride = a.walk.stride};
  work.lines.dims = cuda::index_dims(a.walk, [&](int d) { return d != a.walk.dim; });
  const std::int64_t lines = work.lines.dims.numel();
  const auto issue = [&]<class T>() {
    cuda::start(ScatterKernel::kName, lines_kernel<T>, cuda::grid_for(lines), stream, work, lines,
                a.mode);
  };
  if (a.mode != ScatterMode::kAssign) return with_folded_type(a.y.dtype, issue);
  cuda::with_unit(static_cast<int>(dtype_size(a.y.dtype)), [&]<class T>() {
    if constexpr (sizeof(T) <= 8) issue.template operator()<T>();
  });
}

// Bytes that are moved at a time: several elements if adjacent ones share an index.
int unit_of(const ScatterKernel::Args& a, const SortedWork& work) {
  const auto size = static_cast<std::int64_t>(dtype_size(a.y.dtype));
  const int last = work.inner.ndim - 1;
  if (last < 0 || work.inner.indexed[last] != 1 || work.inner.other[last] != 1)
    return static_cast<int>(size);
  cuda::IndexDims outer = work.inner;
  --outer.ndim;
  return cuda::unit_bytes(
      cuda::address_bits(a.src.data) | cuda::address_bits(a.y.data) |
      cuda::stride_bits(work.lines, size) | cuda::stride_bits(outer, size) |
      static_cast<std::uint64_t>((work.stride | work.src_step | work.inner.shape[last]) * size));
}

void use_units(SortedWork& work, std::int64_t elements) {
  if (elements > 1) {
    const int last = work.inner.ndim - 1;
    work.lines.in_units(elements);
    work.inner.in_units(elements);
    work.inner.set_extent(last, work.inner.shape[last] / elements);
    work.inner.indexed[last] = work.inner.other[last] = 1;
    work.stride /= elements;
    work.src_step /= elements;
  }
  work.units = work.inner.numel();
  work.groups = cuda::row_groups(work.units, 1, cuda::kThreads);
}

void put_sorted(CudaStream stream, const ScatterKernel::Args& a, SortedWork work) {
  const int size = static_cast<int>(dtype_size(a.y.dtype)), widest = unit_of(a, work);
  const auto issue = [&](auto* kernel, int bytes, auto... mode) {
    use_units(work, bytes / size);
    cuda::start(ScatterKernel::kName, kernel,
                cuda::grid_for(work.items * work.groups.slices * work.groups.lanes()), stream, work,
                mode...);
  };
  if (a.mode == ScatterMode::kAssign)
    return cuda::with_unit(widest, [&]<class U>() { issue(assign_kernel<U>, widest); });
  with_folded_type(a.y.dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      if (widest == 16) return issue(fold_kernel<cuda::Pack<T>>, 16, a.mode);
    }
    issue(fold_kernel<T>, size, a.mode);
  });
}

void sort_and_put(CudaStream stream, const ScatterKernel::Args& a, const ScatterPlan& plan,
                  Workspace scratch) {
  const auto has_own = [&](int d) { return d != a.walk.dim && a.walk.index[d] != 0; };
  Lines lines = lines_of(stream, a);
  lines.dims = cuda::index_dims(a.walk, has_own);
  const RadixPlan radix = plan.radix();
  const cuda::RadixScratch sorting(radix, scratch);
  cuda::start(ScatterKernel::kName, keys_kernel, cuda::grid_for(plan.items()), stream, lines,
              plan.items(), plan.keys, static_cast<std::uint64_t*>(sorting.records));
  put_sorted(
      stream, a,
      {.records = cuda::radix_sort<std::uint64_t>(ScatterKernel::kName, stream, radix, sorting),
       .items = plan.items(),
       .no_key = plan.keys,
       .extent = a.walk.extent,
       .count = plan.count,
       .lines = lines.dims,
       .inner = cuda::index_dims(a.walk, [&](int d) { return d != a.walk.dim && !has_own(d); }),
       .units = 0,
       .groups = {},
       .src = a.src.data,
       .y = a.y.data,
       .src_step = a.walk.other[a.walk.dim],
       .stride = a.walk.stride});
}

}  // namespace

void ScatterKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (a.walk.shape.numel() == 0) return;
  const ScatterPlan plan = scatter_plan(a.walk);
  if (plan.sorted) return sort_and_put(stream, a, plan, scratch);
  walk_lines(stream, a);
}

}  // namespace tessera
