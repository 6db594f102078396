#include "tessera/tensor/kernels/cuda/cudnn/cudnn_conv_graph.h"

#include <algorithm>

namespace tessera::cuda {

ConvIds add_convolution(CudnnGraph& graph, const ConvProblem& p) {
  const auto image = [&](std::int64_t channels, const std::array<std::int64_t, 2>& extents,
                         const ConvProblem::Strides& strides, std::int64_t alignment) {
    return graph.tensor({.dtype = cudnn_dtype(p.dtype),
                         .shape = {p.images, p.groups * channels, extents[0], extents[1]},
                         .strides = {strides.begin(), strides.end()},
                         .kind = CudnnTensorKind::kReal,
                         .alignment = alignment});
  };
  ConvIds ids;
  ids.x = image(p.in_channels, p.in, p.x, p.alignment[0]);
  ids.weight =
      graph.tensor({.dtype = cudnn_dtype(p.dtype),
                    .shape = {p.groups * p.out_channels, p.in_channels, p.kernel[0], p.kernel[1]},
                    .strides = {},
                    .kind = CudnnTensorKind::kReal,
                    .alignment = p.alignment[1]});
  ids.y = image(p.out_channels, p.out, p.y, p.alignment[2]);
  CudnnGraph::Convolution c;
  c.compute = p.dtype == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  std::copy(p.padding.begin(), p.padding.end(), c.padding);
  std::copy(p.stride.begin(), p.stride.end(), c.stride);
  std::copy(p.dilation.begin(), p.dilation.end(), c.dilation);
  c.beta = p.beta;
  graph.convolution(p.kind, c, ids.x, ids.weight, ids.y);
  return ids;
}

CudnnNumerics conv_numerics(const ConvProblem& p) {
  const bool half = p.dtype == DType::kBF16 || p.dtype == DType::kF16;
  return {.tensor_cores = half || p.dtype == DType::kF64 || p.tf32, .exact_sums = !half && !p.tf32};
}

}  // namespace tessera::cuda
