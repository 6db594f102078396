#pragma once

/// A convolution or one of its derivatives as a cuDNN graph of one operation. Includes cuDNN's
/// header: only for .cc files of this folder and tests.

#include <array>
#include <compare>
#include <cstdint>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"

namespace tessera::cuda {

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
