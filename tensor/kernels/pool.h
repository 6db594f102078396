#pragma once

/// Pooling over two spatial dims: the maximum or the mean of windows, and their derivatives. In a derivative each input
/// element has the sum over the windows that contain it, in order.

#include <algorithm>

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// The windows of one spatial dim.
struct PoolAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool adaptive = false;  ///< `out` windows that cover the input; the other fields are ignored

  /// The window's elements are first(o), first(o) + dilation, ... below end(o); some may lie
  /// outside [0, in).
  std::int64_t first(std::int64_t o) const {
    return adaptive ? o * in / out : o * stride - padding;
  }
  std::int64_t end(std::int64_t o) const {
    return adaptive ? ((o + 1) * in + out - 1) / out : first(o) + span();
  }
  /// The window's first element inside the input.
  std::int64_t first_inside(std::int64_t o) const {
    const std::int64_t f = first(o);
    return f >= 0 ? f : f + (-f + dilation - 1) / dilation * dilation;
  }
  std::int64_t end_inside(std::int64_t o) const { return std::min(end(o), in); }
  /// Number of elements, with padding, but without those that ceil_mode adds beyond the padding.
  std::int64_t padded_count(std::int64_t o) const {
    return adaptive ? end(o) - first(o) : std::min(end(o), in + padding) - first(o);
  }
  /// Windows [first_output(i), end_output(i)) may contain element i.
  std::int64_t first_output(std::int64_t i) const {
    if (adaptive) return i * out / in;
    const std::int64_t from = i + padding - span() + 1;
    return from <= 0 ? 0 : (from + stride - 1) / stride;
  }
  std::int64_t end_output(std::int64_t i) const {
    if (adaptive) return ((i + 1) * out + in - 1) / in;
    return std::min(out, (i + padding) / stride + 1);
  }

 private:
  std::int64_t span() const { return (kernel - 1) * dilation + 1; }
};

/// Indices [begin, end), and the number by which a mean is divided.
struct PoolSpan {
  std::int64_t begin = 0, end = 0, count = 0;
};

/// Both dims, and the planes (images x channels), which are the units of work.
struct PoolGeometry {
  std::int64_t planes = 0;
  PoolAxis h, w;
  bool count_include_pad = true;  ///< for average pooling
  DType compute = DType::kF32;

  std::int64_t inputs() const { return h.in * w.in; }
  std::int64_t outputs() const { return h.out * w.out; }
  /// The elements of window o of one dim that are inside the input. The divisor of a mean is the
  /// product of both dims' counts.
  PoolSpan window(const PoolAxis& axis, std::int64_t o) const {
    const std::int64_t begin = axis.first_inside(o), end = axis.end_inside(o);
    return {begin, end, count_include_pad ? axis.padded_count(o) : end - begin};
  }
  /// Scratch: the tables of windows, and a share for each thread.
  std::size_t workspace() const {
    return table_bytes() + row_scratch(planes, longer_side(), share());
  }
  /// Bytes of the tables of windows, which all planes use.
  std::size_t table_bytes() const {
    const std::int64_t spans = padded(h.out) + padded(w.out) + padded(h.in);
    return static_cast<std::size_t>(spans) * sizeof(PoolSpan) +
           static_cast<std::size_t>(padded(w.out)) * dtype_size(compute);
  }
  /// Bytes for a plane of each side, two rows of the input and one of the output.
  std::size_t share() const {
    const std::int64_t rows = 2 * padded(w.in) + padded(w.out);
    return static_cast<std::size_t>(padded(inputs()) + padded(outputs()) + rows) *
           dtype_size(compute);
  }
  /// The elements of a plane that a thread works through.
  std::int64_t longer_side() const { return std::max(inputs(), outputs()); }
};

struct MaxPoolKernel {
  static constexpr const char* kName = "max_pool";
  /// x [images, channels, h, w] has any strides; y and indices (i64, row-major in the plane of x;
  /// -1 for none) are contiguous. The compute type's bytes must suffice to count a plane.
  struct Args {
    ConstView x;
    View y;
    View indices;
    PoolGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
    f(a.indices);
  }
  static std::size_t workspace(const Args& a) { return a.g.workspace(); }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

struct MaxPoolBackwardKernel {
  static constexpr const char* kName = "max_pool_backward";
  /// dy has any strides; indices and dx are contiguous. Indices outside the plane name no element;
  /// others have to lie in their windows.
  struct Args {
    ConstView dy;
    ConstView indices;
    View dx;
    PoolGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.indices);
    f(a.dx);
  }
  static std::size_t workspace(const Args& a) { return a.g.workspace(); }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

struct AvgPoolKernel {
  static constexpr const char* kName = "avg_pool";
  /// As MaxPoolKernel.
  struct Args {
    ConstView x;
    View y;
    PoolGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args& a) { return a.g.workspace(); }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

struct AvgPoolBackwardKernel {
  static constexpr const char* kName = "avg_pool_backward";
  struct Args {
    ConstView dy;
    View dx;
    PoolGeometry g;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.dx);
  }
  static std::size_t workspace(const Args& a) { return a.g.workspace(); }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
