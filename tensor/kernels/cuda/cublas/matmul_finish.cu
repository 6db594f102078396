#include "tessera/tensor/kernels/cuda/cublas/matmul_finish.h"

#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"

namespace tessera::cuda {
namespace {

// The element at `column` before the activation. `product` and `result` are the stored values.
template <class C>
__device__ C before_activation(const FinishWork& work, C product, std::int64_t column, C result) {
  C x = static_cast<C>(work.alpha) * product;
  if (work.bias != nullptr)
    x += load_element<C>(work.bias, work.bias_dtype, column * work.bias_stride);
  if (work.beta != 0) x += static_cast<C>(work.beta) * result;
  return x;
}

template <class T>
__device__ T* address(const FinishMatrix& matrix, std::int64_t index, std::int64_t row,
                      std::int64_t column) {
  return static_cast<T*>(matrix.data) + matrix.offset(index, row, column);
}

// A pack of T from a product in f32.
template <class T>
__device__ void finish_pack(const FinishWork& work, std::int64_t matrix, std::int64_t row,
                            std::int64_t column) {
  constexpr int kCount = Pack<T>::kCount, kFrom = Pack<float>::kCount;
  Pack<float> product[kCount / kFrom] = {};
  if (work.product.data != nullptr) {
#pragma unroll
    for (int i = 0; i < kCount / kFrom; ++i)
      product[i] = load_pack(address<const float>(work.product, matrix, row, column), i);
  }
  T* to = address<T>(work.result, matrix, row, column);
  Pack<T> result = {};
  if (work.beta != 0) result = load_pack(to, 0);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float x = before_activation<float>(work, product[i / kFrom].values[i % kFrom], column + i,
                                             convert_element<float>(result.values[i]));
    result.values[i] = convert_element<T>(x);
  }
  if (work.before.data != nullptr)
    store_pack(address<T>(work.before, matrix, row, column), 0, result);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    result.values[i] =
        convert_element<T>(activate(work.activation, convert_element<float>(result.values[i])));
  store_pack(to, 0, result);
}

template <class C>
__device__ void finish_element(const FinishWork& work, std::int64_t matrix, std::int64_t row,
                               std::int64_t column) {
  const auto load = [&](const FinishMatrix& from) {
    return load_element<C>(from.data, from.dtype, from.offset(matrix, row, column));
  };
  const auto store = [&](const FinishMatrix& to, C value) {
    store_element<C>(to.data, to.dtype, to.offset(matrix, row, column), value);
  };
  const C product = work.product.data != nullptr ? load(work.product) : C{0};
  const C x =
      before_activation<C>(work, product, column, work.beta != 0 ? load(work.result) : C{0});
  const FinishMatrix& kept = work.before.data != nullptr ? work.before : work.result;
  store(kept, x);
  if (work.activation != ActivationKind::kNone || work.before.data != nullptr)
    store(work.result, activate(work.activation, load(kept)));  // applied to the rounded value
}

// Each piece of work has `unit` columns.
template <class F>
__device__ void for_each_piece(const FinishWork& work, std::int64_t unit, F f) {
  const std::int64_t in_row = work.columns / unit;
  share(thread_index(), thread_count(), work.batch * work.rows * in_row, [&](std::int64_t i) {
    if (work.batch * work.rows == 1) return f(std::int64_t{0}, std::int64_t{0}, i * unit);
    const std::int64_t row = i / in_row, matrix = row / work.rows;
    f(matrix, row - matrix * work.rows, (i - row * in_row) * unit);
  });
}

// 16 bytes at a time; a single row may end with a partial pack.
template <class T>
__global__ void __launch_bounds__(kThreads, 4)
    finish_packs_kernel(const __grid_constant__ FinishWork work) {
  constexpr int kCount = Pack<T>::kCount;
  for_each_piece(work, kCount, [&](std::int64_t matrix, std::int64_t row, std::int64_t column) {
    finish_pack<T>(work, matrix, row, column);
  });
  if (work.columns % kCount == 0) return;
  share(work.columns / kCount * kCount + thread_index(), thread_count(), work.columns,
        [&](std::int64_t column) { finish_element<float>(work, 0, 0, column); });
}

// The same if only the activation F is left: see FinishWork::only_activates().
template <class T, class F>
__global__ void __launch_bounds__(kThreads, 4)
    activate_packs_kernel(const __grid_constant__ FinishWork work, F f) {
  constexpr int kCount = Pack<T>::kCount;
  for_each_piece(work, kCount, [&](std::int64_t matrix, std::int64_t row, std::int64_t column) {
    Pack<T> pack = load_pack(address<const T>(work.product, matrix, row, column), 0);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      pack.values[i] = convert_element<T>(f(convert_element<float>(pack.values[i])));
    store_pack(address<T>(work.result, matrix, row, column), 0, pack);
  });
  if (work.columns % kCount == 0) return;
  share(work.columns / kCount * kCount + thread_index(), thread_count(), work.columns,
        [&](std::int64_t column) { finish_element<float>(work, 0, 0, column); });
}

template <class C>
__global__ void finish_elements_kernel(const __grid_constant__ FinishWork work) {
  for_each_piece(work, 1, [&](std::int64_t matrix, std::int64_t row, std::int64_t column) {
    finish_element<C>(work, matrix, row, column);
  });
}

template <class T>
void start_packs(CudaStream stream, const FinishWork& work) {
  const Grid grid = grid_for(work.elements() / Pack<T>::kCount + 1);
  const auto start_activation = [&]<class F>(F f) {
    start(MatmulKernel::kName, activate_packs_kernel<T, F>, grid, stream, work, f);
  };
  if (!work.only_activates())
    return start(MatmulKernel::kName, finish_packs_kernel<T>, grid, stream, work);
  switch (work.activation) {
    case ActivationKind::kNone:
      return;  // see only_activates()
    case ActivationKind::kRelu:
      return start_activation(functors::Relu{});
    case ActivationKind::kGelu:
      return start_activation(functors::Gelu{});
    case ActivationKind::kGeluTanh:
      return start_activation(functors::GeluTanh{});
    case ActivationKind::kSilu:
      return start_activation(functors::Silu{});
  }
}

// Returns false if no version for packs fits.
bool try_packs(CudaStream stream, const FinishWork& work) {
  const bool from_f32 = work.product.data == nullptr || work.product.dtype == DType::kF32;
  if (work.in_f64() || !(from_f32 || work.only_activates())) return false;
  bool started = false;
  with_type(work.result.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>) && !std::is_same_v<T, double>) {
      started = takes_packs(work, Pack<T>::kCount);
      if (started) start_packs<T>(stream, work);
    }
  });
  return started;
}

template <class C>
__global__ void convert_bias_kernel(const void* from, DType from_dtype, std::int64_t stride,
                                    void* to, DType to_dtype, std::int64_t n) {
  share(thread_index(), thread_count(), n, [&](std::int64_t i) {
    store_element<C>(to, to_dtype, i, load_element<C>(from, from_dtype, i * stride));
  });
}

}  // namespace

void finish_products(CudaStream stream, const FinishWork& all) {
  if (all.elements() == 0) return;
  const FinishWork work = in_one_row(all);
  if (try_packs(stream, work)) return;
  const Grid grid = grid_for(work.elements());
  if (work.in_f64()) {
    start(MatmulKernel::kName, finish_elements_kernel<double>, grid, stream, work);
  } else {
    start(MatmulKernel::kName, finish_elements_kernel<float>, grid, stream, work);
  }
}

void convert_bias(CudaStream stream, const ConstView& bias, void* to, DType dtype) {
  const std::int64_t n = bias.shape[0];
  with_compute_type(dtype, [&]<class C>() {
    if constexpr (std::is_floating_point_v<C>)
      start(MatmulKernel::kName, convert_bias_kernel<C>, grid_for(n), stream, bias.data, bias.dtype,
            bias.strides[0], to, dtype, n);
  });
}

}  // namespace tessera::cuda
