#pragma once

/// What a trace says of a launch besides the kernel's name and views: which operation it is, where
/// one kernel computes several, and its arithmetic. Kernels without either need nothing here.

#include <cstdint>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/row_norm.h"
#include "tessera/tensor/kernels/scan.h"
#include "tessera/tensor/kernels/softmax.h"

namespace tessera::detail {

// The operation of a launch: "gelu" of the kernel "unary". Null for kernels with only one.

template <class Args>
const char* operation_of(const Args& /*args*/) {
  return nullptr;
}
const char* operation_of(const UnaryKernel::Args& args);
const char* operation_of(const BinaryKernel::Args& args);
const char* operation_of(const TernaryKernel::Args& args);
/// "fill", "copy", "cast" or "axpby".
const char* operation_of(const AxpbyKernel::Args& args);
const char* operation_of(const ReduceKernel::Args& args);
const char* operation_of(const ScanKernel::Args& args);
/// "softmax" or "log_softmax".
const char* operation_of(const SoftmaxKernel::Args& args);
/// "layer_norm" or "rms_norm", also of group norm, which is the layer norm of groups.
const char* operation_of(const RowNormKernel::Args& args);

// Floating-point operations that the formula needs: 2 for each multiplication with its addition in
// a matrix product, a convolution or attention. 0 for all other kernels, whose time is spent on
// memory.

template <class Args>
std::int64_t flops_of(const Args& /*args*/) {
  return 0;
}
/// 2 m n k for each product of the batch.
std::int64_t flops_of(const MatmulKernel::Args& args);
/// A window that reaches into the padding counts in full.
std::int64_t flops_of(const ConvKernel::Args& args);
std::int64_t flops_of(const ConvBackwardInputKernel::Args& args);
std::int64_t flops_of(const ConvBackwardWeightKernel::Args& args);
/// Two products: 2 (dim + value dim) for each pair of query and key. With a causal mask only the
/// pairs that attend count; other masks do not change the number.
std::int64_t flops_of(const AttentionKernel::Args& args);
/// Five products, since the scores are computed again: 2 (3 dim + 2 value dim) for each pair.
std::int64_t flops_of(const AttentionBackwardKernel::Args& args);

}  // namespace tessera::detail
