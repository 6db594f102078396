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

/// The oldest version of cuDNN with which the graphs have computed right results on a GPU.
inline constexpr std::size_t kOldestCudnn = 91400;

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

/// Why cuDNN cannot compute attention with these properties; null if it can.
inline const char* rule_against_cudnn(const AttentionRule& rule, const AttentionGeometry& g) {
  if (rule.dropout_p > 0)
    return "dropout's random numbers depend on positions, which cuDNN's do not: train with dropout "
           "0";
  if (rule.mask.defined()) return "cuDNN takes no mask but the causal one";
  // Rows that attend to no key lie before the diagonal's first row.
  const bool aligned =
      rule.diagonal == 0 || (rule.diagonal > 0 && rule.diagonal == g.keys - g.queries);
  return rule.causal && !aligned
             ? "cuDNN's causal diagonal begins at the first query or ends at the last"
             : nullptr;
}

inline const char* facts_against_cudnn(const CudnnFacts& facts) {
  if (facts.version == 0) return "Tessera was built without cuDNN: install it and build again";
  if (facts.version < kOldestCudnn)
    return "this cuDNN is older than 9.14: put a newer one first in LD_LIBRARY_PATH";
  return facts.major < 8 ? "the GPU is older than compute capability 8.0" : nullptr;
}

/// Whether cuDNN would be faster: 16 bits, and not too small.
inline bool worth_cudnn(DType dtype, const AttentionGeometry& g) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) && g.batch > 0 && g.heads > 0 &&
         g.keys > 0 && g.queries >= kCudnnQueries;
}

inline constexpr const char* kOddLayout =
    "cuDNN takes rows that begin at multiples of 16 bytes, of at most 128 features in multiples of "
    "8";

}  // namespace detail

/// Why cuDNN cannot compute these operands, in words; null if it can.
inline const char* reason_against_cudnn(const AttentionKernel::Args& a, const CudnnFacts& facts) {
  const AttentionGeometry g(a.q, a.k, a.v);
  if (const char* reason = detail::facts_against_cudnn(facts)) return reason;
  if (const char* reason = detail::rule_against_cudnn(a.rule, g)) return reason;
  for (const ConstView* x : {&a.q, &a.k, &a.v})
    if (!detail::lies_for_cudnn(*x)) return detail::kOddLayout;
  return detail::lies_for_cudnn(a.out) ? nullptr : detail::kOddLayout;
}

inline const char* reason_against_cudnn(const AttentionBackwardKernel::Args& a,
                                        const CudnnFacts& facts) {
  const AttentionGeometry g(a.q, a.k, a.v);
  if (const char* reason = detail::facts_against_cudnn(facts)) return reason;
  // GPUs after 9.x have other kernels, for which the graph alone does not fix the order of sums.
  if (facts.major > 9 && a.fixed_order)
    return "on this GPU cuDNN sums gradients in no fixed order, and deterministic mode is on";
  if (const char* reason = detail::rule_against_cudnn(a.rule, g)) return reason;
  for (const ConstView* x : {&a.dout, &a.q, &a.k, &a.v, &a.out})
    if (!detail::lies_for_cudnn(*x)) return detail::kOddLayout;
  for (const View* x : {&a.dq, &a.dk, &a.dv})
    if (!detail::lies_for_cudnn(*x)) return detail::kOddLayout;
  return nullptr;
}

template <class Args>
AttentionPath attention_path(const Args& a, const CudnnFacts& facts) {
  const AttentionGeometry g(a.q, a.k, a.v);
  return detail::worth_cudnn(a.q.dtype, g) && reason_against_cudnn(a, facts) == nullptr
             ? AttentionPath::kCudnn
             : AttentionPath::kPlain;
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
  return detail::facts_against_cudnn(facts) == nullptr && g.images > 0 && small ? ConvPath::kCudnn
                                                                                : ConvPath::kPlain;
}

}  // namespace tessera::cuda
