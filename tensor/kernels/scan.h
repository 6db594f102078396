#pragma once

/// Running results along the last dim: sums, products, extremes.

#include "tessera/tensor/kernels/plans/chunks.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

enum class ScanOp : std::uint8_t {
  kSum,
  kProd,
  kMax,           ///< the position of the largest element so far, the last of equals; NaN wins
  kMin,           ///< of the smallest
  kLogCumSumExp,  ///< floating; log(exp(x[0]) + ... + exp(x[i]))
};

struct ScanKernel {
  static constexpr const char* kName = "scan";
  /// x and y of one shape with at least 1 dim, any strides. Floating dtypes are computed in f64,
  /// others in i64, from the last element on if `reverse` is set. A CPU goes one element after
  /// another. A GPU may combine floating results of segments: sums round in another order, and
  /// products that leave f64's range on the way may return to it, where a CPU keeps 0 or infinity.
  /// For kMax and kMin y is i64 and `reverse` is not set.
  struct Args {
    ConstView x;
    View y;
    ScanOp op = ScanOp::kSum;
    bool reverse = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  /// The state of each chunk of a line (math/scan_steps.h): one number, or two for extremes and
  /// floating products.
  static std::size_t cuda_workspace(const Args& a) {
    const LineChunks cut = line_chunks(a.x.shape, a.x.strides);
    const bool is_pair = a.op == ScanOp::kMax || a.op == ScanOp::kMin ||
                         (a.op == ScanOp::kProd && is_floating(a.x.dtype));
    const std::size_t bytes = is_pair ? 16 : 8;
    return cut.chunks == 1 ? 0 : static_cast<std::size_t>(cut.lines * cut.chunks) * bytes;
  }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
