#pragma once

/// The gradients of weight and bias of a norm of rows, on a GPU.

#include "tessera/tensor/kernels/row_norm.h"

namespace tessera::cuda {

/// Computes dweight and dbias, if they are defined, in two stages: sums over chunks of samples into
/// `scratch`, of RowNormBackwardKernel::cuda_workspace() bytes, then over the chunks in order, in
/// f64. The order depends on the shape alone; it is not the CPU's.
void parameter_gradients(CudaStream stream, const RowNormBackwardKernel::Args& a,
                         Workspace scratch);

}  // namespace tessera::cuda
