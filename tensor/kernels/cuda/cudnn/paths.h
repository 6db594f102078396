#pragma once

/// The choice between cuDNN and our own kernels on a GPU; ours support everything. Pure functions,
/// tested on the CPU.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"

namespace tessera::cuda {

// The choice between cuDNN and our own kernels for attention on a GPU; ours support everything. A
// pure function of the operands, tested on the CPU.
//
// cuDNN gets the cases that its flash kernels support with our semantics: bf16 and f16, heads of
// at most 128 columns in multiples of 8, rows aligned to 16 bytes, no mask except a causal one
// whose diagonal begins at the first query or ends at the last, and rows that all attend to a key.
// Dropout is always ours: its random numbers depend on positions of the global tensor, so that
// they do not depend on the device or on the sharding over ranks; cuDNN's do.

/// Properties of this build and of the current GPU.
struct CudnnFacts {
  std::size_t version = 0;  ///< 91900 is 9.19; 0 if this build has no cuDNN
  int major = 0;            ///< compute capability of the GPU
};

enum class AttentionPath { kPlain, kCudnn };

/// Fewer queries use our kernels: text generation has one more key in each step, and cuDNN needs a
/// plan for each number of keys, which takes part of a second.
inline constexpr std::int64_t kCudnnQueries = 16;

namespace detail {

/// The strides of all dims before the last three merged into one, which cuDNN needs; -1 if they
/// cannot be merged.
inline std::int64_t batch_stride(const Shape& shape, const Shape& strides) {
  std::int64_t stride = 0, extent = 1;
  for (int d = shape.ndim() - 4; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (extent == 1) {
      stride = strides[d];
    } else if (strides[d] != stride * extent) {
      return -1;
    }
    extent *= shape[d];
  }
  return stride;
}

/// Whether cuDNN can read and write an operand [.., heads, length, dim] in place.
inline bool lies_for_cudnn(const void* data, const Shape& shape, const Shape& strides) {
  constexpr std::int64_t kPack = 8;  // 16 bytes
  const int last = shape.ndim() - 1;
  bool fits =
      is_pack_aligned(data) && strides[last] == 1 && shape[last] % kPack == 0 && shape[last] <= 128;
  for (int d = 0; d < last; ++d) fits = fits && (shape[d] == 1 || strides[d] % kPack == 0);
  const std::int64_t batch = batch_stride(shape, strides);
  return fits && strides[last - 1] >= 0 && strides[last - 2] >= 0 && batch >= 0;
}

template <class View>
bool lies_for_cudnn(const View& x) {
  return lies_for_cudnn(x.data, x.shape, x.strides);
}

inline bool rule_fits_cudnn(const AttentionRule& rule, const AttentionGeometry& g) {
  if (rule.mask.defined() || rule.dropout_p > 0 || g.keys == 0) return false;
  if (!rule.causal) return true;
  // Rows that attend to no key lie before the diagonal's first row.
  return rule.diagonal == 0 || (rule.diagonal > 0 && rule.diagonal == g.keys - g.queries);
}

inline bool facts_fit_cudnn(const CudnnFacts& facts, DType dtype, const AttentionGeometry& g) {
  return facts.version >= 91900 && facts.major >= 8 &&
         (dtype == DType::kBF16 || dtype == DType::kF16) && g.batch > 0 && g.heads > 0 &&
         g.queries >= kCudnnQueries;
}

}  // namespace detail

inline AttentionPath attention_path(const AttentionKernel::Args& a, const CudnnFacts& facts) {
  const AttentionGeometry g(a.q, a.k, a.v);
  const bool fits = detail::facts_fit_cudnn(facts, a.q.dtype, g) &&
                    detail::rule_fits_cudnn(a.rule, g) && detail::lies_for_cudnn(a.q) &&
                    detail::lies_for_cudnn(a.k) && detail::lies_for_cudnn(a.v) &&
                    detail::lies_for_cudnn(a.out);
  return fits ? AttentionPath::kCudnn : AttentionPath::kPlain;
}

inline AttentionPath attention_path(const AttentionBackwardKernel::Args& a,
                                    const CudnnFacts& facts) {
  const AttentionGeometry g(a.q, a.k, a.v);
  // GPUs after 9.x have other kernels, for which the graph alone does not fix the order of sums.
  bool fits = detail::facts_fit_cudnn(facts, a.q.dtype, g) && facts.major <= 9 &&
              detail::rule_fits_cudnn(a.rule, g);
  for (const ConstView* x : {&a.dout, &a.q, &a.k, &a.v, &a.out})
    fits = fits && detail::lies_for_cudnn(*x);
  for (const View* x : {&a.dq, &a.dk, &a.dv}) fits = fits && detail::lies_for_cudnn(*x);
  return fits ? AttentionPath::kCudnn : AttentionPath::kPlain;
}

// The choice between cuDNN and our own kernels for convolution on a GPU; ours support everything.
// Pure functions, tested on the CPU.

enum class ConvPath { kPlain, kCudnn };

/// cuDNN is tried for everything within its 32-bit extents. It may still have no plan with a fixed
/// order of sums and full f32 precision.
inline ConvPath conv_path(const ConvGeometry& g, const CudnnFacts& facts) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const bool small = g.images <= most && g.groups * g.in_channels <= most &&
                     g.groups * g.out_channels <= most && g.plane() <= most && g.outputs() <= most;
  return facts.version >= 91900 && facts.major >= 8 && g.images > 0 && small ? ConvPath::kCudnn
                                                                             : ConvPath::kPlain;
}

}  // namespace tessera::cuda
