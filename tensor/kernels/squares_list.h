#pragma once

/// The sum of the squares of all elements of a list of tensors; its root is the norm of all
/// gradients.

#include <algorithm>
#include <vector>

#include "tessera/tensor/kernels/reduce.h"

namespace tessera {

struct SquaresListKernel {
  static constexpr const char* kName = "sum_of_squares_list";
  /// y, one f64, is 0 + s_0 + s_1 + ..., in this order, where s_i is the result of ReduceKernel's
  /// kSumOfSquares for tensor i in f64, with the same order and bits. Tensors are contiguous and
  /// floating; dtypes may differ.
  struct Args {
    std::vector<ConstView> tensors;
    View y;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const ConstView& tensor : a.tensors) f(tensor);
    f(a.y);
  }
  /// For one tensor at a time.
  static std::size_t workspace(const Args& a) {
    std::size_t most = 0;
    for (const ConstView& tensor : a.tensors)
      most = std::max(most, ReduceKernel::workspace(one_tensor(tensor)));
    return most;
  }
  /// One number for each group of blocks, for each 64 groups, and for each tensor.
  static std::size_t cuda_workspace(const Args& a) {
    std::int64_t numbers = 0;
    for (const ConstView& tensor : a.tensors) {
      const std::int64_t tiles = cuda_tiles(tensor.numel());
      numbers += tiles + (tiles + ReduceKernel::kGroup - 1) / ReduceKernel::kGroup + 1;
    }
    return static_cast<std::size_t>(numbers) * 8;
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);

  /// The reduction of one of the tensors; y is not set.
  static ReduceKernel::Args one_tensor(const ConstView& tensor) {
    ReduceKernel::Args args;
    args.x = tensor;
    args.x.shape = {tensor.numel()};
    args.x.strides = {1};
    args.op = ReduceOp::kSumOfSquares;
    return args;
  }
  /// The number of groups of blocks of a tensor; a block of threads takes one group.
  static std::int64_t cuda_tiles(std::int64_t elements) {
    constexpr std::int64_t kTile = ReduceKernel::kBlock * ReduceKernel::kGroup;
    return (elements + kTile - 1) / kTile;
  }
};

}  // namespace tessera
