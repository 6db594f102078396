#pragma once

/// Folding the elements along some dims into one.
///
/// The order depends only on the number of elements. The elements of one result, in row-major
/// order, are split into blocks of kBlock. In a block, element i goes to lane i % kLanes; lanes are
/// folded pairwise. Blocks are folded in order, kGroup at a time, and their results again, until
/// one is left; floating sums of blocks are in f64. Strides, threads, the device and the number of
/// other results do not matter.

#include <algorithm>
#include <vector>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

enum class ReduceOp : std::uint8_t {
  kSum,           ///< f32 and 16-bit types in f32 inside a block
  kMean,          ///< floating; the sum divided by the count
  kSumOfSquares,  ///< floating; squares and sums in f64
  kNorm2,         ///< its root
  kNormP,         ///< floating; (sum |x|^p)^(1/p) in f64, p = parameter
  kSumAbs,        ///< floating
  kMax,           ///< NaN wins
  kMin,
  kMaxAbs,  ///< floating
  kMinAbs,
  kProd,          ///< floating in f64, integers wrap around
  kCountNonzero,  ///< NaN is not zero
  kAny,           ///< 1 or 0
  kAll,
  kLogSumExp,  ///< floating; log sum exp(x - shift) + shift, an infinite shift taken as 0
  kVar,        ///< floating; sum (x - shift)^2 / (count - parameter) in f64
  kStddev,     ///< its root
};

struct ReduceKernel {
  static constexpr const char* kName = "reduce";
  static constexpr std::int64_t kBlock = 1024;
  static constexpr int kLanes = 16;
  static constexpr std::int64_t kGroup = 64;

  /// x has the kept dims first, then the reduced ones; y, of any dtype, is contiguous with the
  /// extents of the kept dims.
  struct Args {
    ConstView x;
    View y;
    int kept_dims = 0;
    ReduceOp op = ReduceOp::kSum;
    double parameter = 0;
    ConstView shift{};  ///< f64, as y; for kLogSumExp, kVar and kStddev, else undefined

    /// The number of elements of one result, and of their blocks.
    std::int64_t count() const {
      std::int64_t n = 1;
      for (int d = kept_dims; d < x.shape.ndim(); ++d) n *= x.shape[d];
      return n;
    }
    std::int64_t blocks() const { return (count() + kBlock - 1) / kBlock; }
    std::int64_t outputs() const {
      std::int64_t n = 1;
      for (int d = 0; d < kept_dims; ++d) n *= x.shape[d];
      return n;
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    if (a.shift.defined()) f(a.shift);
    f(a.y);
  }
  /// 8 bytes per block and result.
  static std::size_t workspace(const Args& a) {
    return static_cast<std::size_t>(a.outputs() * a.blocks()) * 8;
  }
  /// 8 bytes for each group of blocks, or each block, and for groups of groups.
  static std::size_t cuda_workspace(const Args& a) {
    if (a.blocks() <= 1) return 0;
    const std::int64_t above = (a.blocks() + kGroup * kGroup - 1) / (kGroup * kGroup);
    return static_cast<std::size_t>(a.outputs() * (a.blocks() + above)) * 8;
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

/// The sum of the rows of a matrix of 16-bit elements, added to numbers in f32: the gradient of a
/// bias, in the memory where gradients are collected.
struct RowSumKernel {
  static constexpr const char* kName = "row_sum";
  /// y = beta * y + (row 0 of x + row 1 + ...), in f32. x [rows, columns] has rows without gaps; y
  /// [columns] is contiguous. If beta is 0, y is not read. The CPU adds row by row; a GPU adds
  /// chunks of rows, then the chunks in order, in f64.
  struct Args {
    ConstView x;
    View y;
    double beta = 0;

    std::int64_t rows() const { return x.shape[0]; }
    std::int64_t columns() const { return x.shape[1]; }
    /// Chunks of a GPU, for eight blocks of threads on each of the 132 processors of an H100.
    std::int64_t cuda_chunks() const {
      const std::int64_t tiles = (columns() + kCudaColumns - 1) / kCudaColumns;
      const std::int64_t wanted =
          std::max<std::int64_t>(1, 8 * 132 / std::max<std::int64_t>(1, tiles));
      return std::clamp<std::int64_t>((rows() + 31) / 32, 1, wanted);
    }
  };
  static constexpr std::int64_t kCudaColumns = 256;  ///< of a block of threads
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args& /*args*/) { return 0; }
  /// The sums of the chunks.
  static std::size_t cuda_workspace(const Args& a) {
    return static_cast<std::size_t>(a.cuda_chunks() * a.columns()) * sizeof(float);
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

/// The sum of the squares of all elements of a list of tensors; its root is the norm of all
/// gradients.
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
