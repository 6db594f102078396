#pragma once

/// Order along the last dim: sorted positions, the largest element.

#include <algorithm>

#include "tessera/tensor/kernels/plans/chunks.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// The positions of the elements along the last dim in sorted order, or of the first k of them.
struct ArgsortKernel {
  static constexpr const char* kName = "argsort";
  /// An element being sorted.
  struct Entry {
    std::uint64_t key;
    std::int64_t position;
  };
  /// The number of lines that are sorted at the same time, each with a buffer of its own.
  static constexpr std::int64_t kGroups = 64;

  /// x [..., n] has any dtype and strides; y [..., k] is i64, k <= n, any strides. Equal elements
  /// keep their order; NaN counts as the largest, -0 equals 0.
  struct Args {
    ConstView x;
    View y;
    bool descending = false;

    std::int64_t extent() const { return x.shape.back(); }
    std::int64_t lines() const { return extent() == 0 ? 0 : x.numel() / extent(); }
    std::int64_t groups() const { return std::min(lines(), kGroups); }
    /// Elements of a line that are kept while the first k are chosen.
    std::int64_t room() const {
      constexpr std::int64_t kLeast = 32;
      return std::min(extent(), std::max(2 * y.shape.back(), kLeast));
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args& a) {
    return static_cast<std::size_t>(a.groups() * a.room()) * sizeof(Entry);
  }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

/// The position of the largest or smallest element along the last dim.
struct ArgExtremeKernel {
  static constexpr const char* kName = "arg_extreme";
  /// x [..., n] has any dtype and strides, n > 0; y [...] is i64, any strides. The first of equal
  /// elements wins; the first NaN wins over numbers.
  struct Args {
    ConstView x;
    View y;
    bool largest = true;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  /// The best element of each chunk of a line, and its position.
  static std::size_t cuda_workspace(const Args& a) {
    const LineChunks cut = line_chunks(a.x.shape, a.x.strides);
    return cut.chunks == 1 ? 0 : static_cast<std::size_t>(cut.lines * cut.chunks) * 16;
  }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
