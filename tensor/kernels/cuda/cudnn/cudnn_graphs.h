#pragma once

/// The graphs of operations that cuDNN gets: attention, convolution and their derivatives. Includes
/// cuDNN's header: only for .cc files of this folder and tests.

#include <array>
#include <compare>
#include <cstdint>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"

namespace tessera::cuda {

// Attention and its derivative as graphs of operations that cuDNN's flash kernels recognise.
// Includes cuDNN's header: only for .cc files of this folder and tests.
//
// cuDNN 9.19 also has a single attention operation, but without a causal rule; the graphs here have
// one, and fix the order of sums where that is asked for.

enum class CausalKind { kNone, kTopLeft, kBottomRight };

/// What a plan depends on: the cache key.
struct AttentionProblem {
  using Strides = std::array<std::int64_t, 4>;  ///< of [batch, heads, length, dim], in elements

  int device = 0;
  bool backward = false;
  bool fixed_order =
      false;  ///< backward: the sums of dq have one order; costs scratch, see cudnn_slices.h
  DType dtype = DType::kBF16;
  CausalKind causal = CausalKind::kNone;
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, dim = 8, value_dim = 8;
  Strides q{}, k{}, v{}, out{};
  Strides dout{}, dq{}, dk{}, dv{};  ///< backward

  auto operator<=>(const AttentionProblem&) const = default;
};

AttentionProblem attention_problem(const AttentionKernel::Args& a, int device);
AttentionProblem attention_problem(const AttentionBackwardKernel::Args& a, int device);

/// The tensors that a launch binds; -1: not used.
struct AttentionIds {
  CudnnGraph::Id q = -1, k = -1, v = -1, out = -1;
  CudnnGraph::Id log_sum_exp = -1;  ///< f32, contiguous
  CudnnGraph::Id dout = -1, dq = -1, dk = -1, dv = -1;
  CudnnGraph::Id dots = -1;                         ///< f32 scratch like log_sum_exp
  CudnnGraph::Id dq_sums = -1;                      ///< f32 scratch like dq, contiguous
  CudnnGraph::Id scale = -1, never = -1, one = -1;  ///< f32 constants; never is -inf
  CudnnGraph::Id keys = -1, queries = -1;           ///< i32 constants
};

/// Adds attention, or its derivative if the problem is backward.
AttentionIds add_attention(CudnnGraph& graph, const AttentionProblem& p);

// A convolution or one of its derivatives as a cuDNN graph of one operation. Includes cuDNN's
// header: only for .cc files of this folder and tests.

/// What a plan depends on: the cache key. x and y are the input and the output of the convolution,
/// or their gradients; the weight is contiguous.
struct ConvProblem {
  using Strides = std::array<std::int64_t, 4>;  ///< in elements

  int device = 0;
  CudnnConvKind kind = CudnnConvKind::kForward;
  DType dtype = DType::kF32;
  bool tf32 = false;  ///< for f32
  std::int64_t images = 1, groups = 1;
  std::int64_t in_channels = 1, out_channels = 1;                 ///< of one group
  std::array<std::int64_t, 2> in{1, 1}, out{1, 1}, kernel{1, 1};  ///< h, w
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  Strides x{}, y{};
  std::array<std::int64_t, 3> alignment{16, 16, 16};  ///< bytes, of x, weight and y
  double beta = 0;

  auto operator<=>(const ConvProblem&) const = default;
};

struct ConvIds {
  CudnnGraph::Id x = -1, weight = -1, y = -1;
};

ConvIds add_convolution(CudnnGraph& graph, const ConvProblem& p);

/// The numerics that `p` allows: f32 without TF32 excludes rounding of operands and loss of
/// accuracy.
CudnnNumerics conv_numerics(const ConvProblem& p);

}  // namespace tessera::cuda
