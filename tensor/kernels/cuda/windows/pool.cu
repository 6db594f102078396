#include "tessera/tensor/kernels/pool.h"

#include <limits>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/windows/pool_windows.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

// An operand of any strides, [images, channels, h, w].
struct Strided {
  explicit Strided(const ConstView& view)
      : data(view.data),
        image(view.strides[0]),
        channel(view.strides[1]),
        row(view.strides[2]),
        column(view.strides[3]),
        channels(view.shape[1]),
        by_channels(cuda::pool_divisor(view.shape[1])) {}

  // The first element of a plane.
  template <class T>
  __device__ const T* plane(std::int64_t plane) const {
    const std::int64_t at = cuda::quotient(plane, by_channels);
    return static_cast<const T*>(data) + at * image + (plane - at * channels) * channel;
  }
  template <class C, class T>
  __device__ C load(const T* plane, std::int64_t r, std::int64_t c) const {
    return convert_element<C>(plane[r * row + c * column]);
  }

  const void* data;
  std::int64_t image, channel, row, column, channels;
  cuda::PoolDivisor by_channels;
};

// The parameters of all four kernels; `side` is the result's.
struct Work {
  cuda::PoolPlanes g;
  cuda::PoolSide side;
  Strided from;
  std::int64_t n;
};

template <class F>
__device__ void for_each_result(const Work& work, const F& f) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), work.n,
              [&](std::int64_t i) { f(i, work.side.place(i)); });
}

// The first of equal elements, and the first NaN.
template <class T>
__global__ void max_kernel(const __grid_constant__ Work work, T* y, std::int64_t* indices) {
  using C = Computed<T>;
  const cuda::PoolWindows &h = work.g.h, &w = work.g.w;
  for_each_result(work, [&](std::int64_t i, const cuda::PoolPlace& at) {
    const T* x = work.from.plane<T>(at.plane);
    C best = -std::numeric_limits<C>::infinity();
    std::int64_t index = -1;
    const std::int64_t end_row = h.end_inside(at.row), end_column = w.end_inside(at.column),
                       first_column = w.first_inside(at.column);
    for (std::int64_t r = h.first_inside(at.row); r < end_row; r += h.dilation) {
      for (std::int64_t c = first_column; c < end_column; c += w.dilation) {
        const C value = work.from.load<C>(x, r, c);
        const bool is_first_nan = value != value && best == best;
        if (!(value > best || index < 0 || is_first_nan)) continue;
        best = value;
        index = r * w.in + c;
      }
    }
    y[i] = convert_element<T>(best);
    indices[i] = index;
  });
}

template <class T>
__global__ void max_backward_kernel(const __grid_constant__ Work work, T* dx,
                                    const std::int64_t* indices) {
  using C = Computed<T>;
  const cuda::PoolWindows &h = work.g.h, &w = work.g.w;
  for_each_result(work, [&](std::int64_t i, const cuda::PoolPlace& at) {
    const T* dy = work.from.plane<T>(at.plane);
    const std::int64_t* chosen = indices + at.plane * h.out * w.out;
    const std::int64_t self = at.row * w.in + at.column;
    const std::int64_t end_row = h.end_output(at.row), end_column = w.end_output(at.column),
                       first_column = w.first_output(at.column);
    C sum = 0;
    for (std::int64_t r = h.first_output(at.row); r < end_row; ++r) {
      for (std::int64_t c = first_column; c < end_column; ++c) {
        if (chosen[r * w.out + c] == self) sum += work.from.load<C>(dy, r, c);
      }
    }
    dx[i] = convert_element<T>(sum);
  });
}

// Sums each column separately, as on the CPU.
template <class T>
__global__ void avg_kernel(const __grid_constant__ Work work, T* y) {
  using C = Computed<T>;
  const cuda::PoolWindows &h = work.g.h, &w = work.g.w;
  for_each_result(work, [&](std::int64_t i, const cuda::PoolPlace& at) {
    const T* x = work.from.plane<T>(at.plane);
    const std::int64_t first_row = h.first_inside(at.row), end_row = h.end_inside(at.row),
                       end_column = w.end_inside(at.column);
    C sum = 0;
    for (std::int64_t c = w.first_inside(at.column); c < end_column; ++c) {
      C column = 0;
      for (std::int64_t r = first_row; r < end_row; ++r) column += work.from.load<C>(x, r, c);
      sum += column;
    }
    y[i] = convert_element<T>(sum / static_cast<C>(work.g.divisor(at.row, at.column)));
  });
}

// The same for large windows: one warp per window.
template <class T>
__global__ void large_avg_kernel(const __grid_constant__ Work work, T* y) {
  using C = Computed<T>;
  const cuda::PoolWindows &h = work.g.h, &w = work.g.w;
  const auto lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  cuda::share(cuda::thread_index() / cuda::kWarpSize, cuda::thread_count() / cuda::kWarpSize,
              work.n, [&](std::int64_t i) {
                const cuda::PoolPlace at = work.side.place(i);
                const T* x = work.from.plane<T>(at.plane);
                const std::int64_t first_row = h.first_inside(at.row),
                                   first_column = w.first_inside(at.column),
                                   columns = w.end_inside(at.column) - first_column,
                                   count = (h.end_inside(at.row) - first_row) * columns;
                C sum = 0;
                for (std::int64_t e = lane; e < count; e += cuda::kWarpSize) {
                  const std::int64_t r = e / columns;
                  sum += work.from.load<C>(x, first_row + r, first_column + e - r * columns);
                }
                sum = cuda::warp_fold(sum, [](C a, C b) { return a + b; });
                if (lane != 0) return;
                y[i] = convert_element<T>(sum / static_cast<C>(work.g.divisor(at.row, at.column)));
              });
}

template <class T>
__global__ void avg_backward_kernel(const __grid_constant__ Work work, T* dx) {
  using C = Computed<T>;
  const cuda::PoolWindows &h = work.g.h, &w = work.g.w;
  for_each_result(work, [&](std::int64_t i, const cuda::PoolPlace& at) {
    const T* dy = work.from.plane<T>(at.plane);
    const std::int64_t first_row = h.first_output(at.row), end_row = h.end_output(at.row),
                       end_column = w.end_output(at.column);
    C sum = 0;
    for (std::int64_t c = w.first_output(at.column); c < end_column; ++c) {
      C column = 0;
      for (std::int64_t r = first_row; r < end_row; ++r)
        column += work.from.load<C>(dy, r, c) / static_cast<C>(work.g.divisor(r, c));
      sum += column;
    }
    dx[i] = convert_element<T>(sum);
  });
}

// From the input to the output, or back.
Work forward_work(const PoolGeometry& g, const ConstView& x) {
  return {.g = cuda::PoolPlanes(g),
          .side = {g.h.out, g.w.out},
          .from = Strided(x),
          .n = g.planes * g.outputs()};
}
Work backward_work(const PoolGeometry& g, const ConstView& dy) {
  return {.g = cuda::PoolPlanes(g),
          .side = {g.h.in, g.w.in},
          .from = Strided(dy),
          .n = g.planes * g.inputs()};
}

template <class Body>
void with_floating(DType dtype, const Body& body) {
  with_type(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) body.template operator()<T>();
  });
}

// Windows of at least this many elements use a warp: fewer would leave lanes idle.
bool has_large_windows(const PoolGeometry& g) {
  const auto reach = [](const PoolAxis& axis) {
    return axis.adaptive ? axis.in / std::max<std::int64_t>(1, axis.out)
                         : std::min(axis.kernel, axis.in);
  };
  return reach(g.h) * reach(g.w) >= 2 * cuda::kWarpSize;
}

}  // namespace

void MaxPoolKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const Work work = forward_work(a.g, a.x);
  if (work.n == 0) return;
  with_floating(a.x.dtype, [&]<class T>() {
    cuda::start(kName, max_kernel<T>, cuda::grid_for(work.n), stream, work, a.y.as<T>(),
                a.indices.as<std::int64_t>());
  });
}

void MaxPoolBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const Work work = backward_work(a.g, a.dy);
  if (work.n == 0) return;
  with_floating(a.dy.dtype, [&]<class T>() {
    cuda::start(kName, max_backward_kernel<T>, cuda::grid_for(work.n), stream, work, a.dx.as<T>(),
                a.indices.as<std::int64_t>());
  });
}

void AvgPoolKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const Work work = forward_work(a.g, a.x);
  if (work.n == 0) return;
  const bool large = has_large_windows(a.g);
  const cuda::Grid grid = cuda::grid_for(large ? work.n * cuda::kWarpSize : work.n);
  with_floating(a.x.dtype, [&]<class T>() {
    cuda::start(kName, large ? large_avg_kernel<T> : avg_kernel<T>, grid, stream, work,
                a.y.as<T>());
  });
}

void AvgPoolBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const Work work = backward_work(a.g, a.dy);
  if (work.n == 0) return;
  with_floating(a.dy.dtype, [&]<class T>() {
    cuda::start(kName, avg_backward_kernel<T>, cuda::grid_for(work.n), stream, work, a.dx.as<T>());
  });
}

}  // namespace tessera
