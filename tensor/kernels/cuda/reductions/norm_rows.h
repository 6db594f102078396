#pragma once

/// Shared by the GPU kernels of row norms: weights of channels, and aligned rows. For .cu files;
/// see kernels/row_norm.h.

#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/row_norm.h"

namespace tessera::cuda {

/// A number for each channel, in the compute type or in x's dtype; 1 or 0 for all if data is null.
struct Channels {
  const void* data = nullptr;
  bool narrow = false;  ///< in x's dtype of 16 bits
  bool packed = false;  ///< every pack of a row can be read in 16 bytes
};

inline Channels channels_of(const ConstView& view, const RowNormShape& shape) {
  const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
  return {.data = view.data,
          .narrow = size == 2,
          .packed = shape.spatial == 1 && is_pack_aligned(view.data) &&
                    (shape.groups == 1 || shape.channels * size % 16 == 0)};
}

/// The shape in the form that kernels need.
struct NormGeometry {
  std::int64_t groups = 1;
  std::int64_t channels = 0;
  std::int64_t spatial = 1;
  double inverse_length = 0;
};
inline NormGeometry norm_geometry(const RowNormShape& shape) {
  return {.groups = shape.groups,
          .channels = shape.channels,
          .spatial = shape.spatial,
          .inverse_length = 1 / static_cast<double>(std::max<std::int64_t>(1, shape.length()))};
}

/// Rows of a contiguous tensor of T.
inline RowOperand norm_rows(const void* data, DType dtype, std::int64_t length) {
  RowOperand out;
  out.data = const_cast<void*>(data);
  out.walk.ndim = 1;
  out.walk.strides[0] = length;
  out.packed =
      is_pack_aligned(data) && length * static_cast<std::int64_t>(dtype_size(dtype)) % 16 == 0;
  return out;
}

namespace detail {

/// load_channels() from data of S.
template <class S, int kCount, class C>
__device__ inline void load_stored_channels(const Channels& from, const NormGeometry& g,
                                            std::int64_t group, std::int64_t first,
                                            C (&values)[kCount]) {
  constexpr int kPack = Pack<S>::kCount;
  const S* data = static_cast<const S*>(from.data) + group * g.channels;
  if constexpr (kCount % kPack == 0) {
    if (from.packed && first + kCount <= g.channels) {
#pragma unroll
      for (int p = 0; p < kCount / kPack; ++p) {
        const Pack<S> pack = load_pack(data + first, p);
#pragma unroll
        for (int j = 0; j < kPack; ++j) values[p * kPack + j] = convert_element<C>(pack.values[j]);
      }
      return;
    }
  }
  if (g.spatial == 1) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (first + j < g.channels) values[j] = convert_element<C>(data[first + j]);
    }
    return;
  }
  std::int64_t channel = first / g.spatial, rest = first - channel * g.spatial;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (channel < g.channels) values[j] = convert_element<C>(data[channel]);
    if (++rest == g.spatial) {
      rest = 0;
      ++channel;
    }
  }
}

}  // namespace detail

/// values[j] = the channel's number for element first + j of a row of `group` of T, for kCount
/// elements; `missing` without data and after the row's end.
template <class T, int kCount, class C>
__device__ inline void load_channels(const Channels& from, const NormGeometry& g,
                                     std::int64_t group, std::int64_t first, C missing,
                                     C (&values)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) values[j] = missing;
  if (from.data == nullptr) return;
  if constexpr (sizeof(T) == 2) {
    if (from.narrow) return detail::load_stored_channels<T>(from, g, group, first, values);
  }
  detail::load_stored_channels<C>(from, g, group, first, values);
}

// The gradients of a norm of rows, on a GPU. Sums over samples are first those of chunks, into
// `scratch` of RowNormBackwardKernel::cuda_workspace() bytes, then over the chunks in a fixed order,
// in f64. The order depends on the shape alone; it is not the CPU's.

/// All gradients, if a.cuda_one_pass().
void row_norm_gradients(CudaStream stream, const RowNormBackwardKernel::Args& a, Workspace scratch);

/// dweight and dbias, as far as they are defined.
void parameter_gradients(CudaStream stream, const RowNormBackwardKernel::Args& a,
                         Workspace scratch);

/// Their second step, for sums [chunks, 2, channels] of weight and bias in `scratch`.
void add_norm_chunks(CudaStream stream, const RowNormBackwardKernel::Args& a, Workspace scratch);

}  // namespace tessera::cuda
