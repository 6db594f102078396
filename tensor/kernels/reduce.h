#pragma once

/// Sums over some dims.
///
/// The order of additions depends on the number of elements only: the elements of one sum, in
/// row-major order, are cut into blocks of kBlock; in a block, element i goes to lane i % kLanes;
/// lanes are folded pairwise; block sums are added in order, those of f32 in f64. Strides, threads
/// and the number of other sums play no part.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

enum class ReduceOp : std::uint8_t {
  kSum,           ///< f32 -> f32 (blocks in f32), f64 -> f64, integers -> i64
  kMean,          ///< floating; the sum divided by the count
  kSumOfSquares,  ///< floating -> f64, squares and sums in f64
};

struct ReduceKernel {
  static constexpr const char* kName = "reduce";
  static constexpr std::int64_t kBlock = 1024;
  static constexpr int kLanes = 16;

  /// x has the kept dims first, then the reduced ones; y is contiguous with the extents of the kept
  /// dims.
  struct Args {
    ConstView x;
    View y;
    int kept_dims = 0;
    ReduceOp op = ReduceOp::kSum;

    /// Elements of one sum, and the blocks they are cut into.
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
    f(a.y);
  }
  /// One number of 8 bytes per block and sum.
  static std::size_t workspace(const Args& a) {
    return static_cast<std::size_t>(a.outputs() * a.blocks()) * 8;
  }
  static void cpu(const Args& a, Workspace scratch);
};

}  // namespace tessera
