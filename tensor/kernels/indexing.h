#pragma once

/// Kernels with indices: gather, scatter, the combination of several indices into one, and the
/// positions of the elements that are not 0.

#include <algorithm>
#include <array>
#include <cstdint>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Shared by kernels that use indices.

/// Called by a kernel that finds an index out of range: outside [0, extent), or, for kernels that
/// count negative indices from the back, outside [-extent, extent). Throws. A function pointer,
/// because kernel builds do not link the code that formats the message. `position` counts the indices in
/// row-major order; an index that a stride of 0 repeats counts once. `dim` is the indexed dim.
using BadIndex = void (*)(std::int64_t index, std::int64_t position, std::int64_t extent, int dim);

/// How three operands are walked together: the indexed operand, the indices, and the operand that
/// receives or supplies the elements. All have one shape; indices are repeated where needed. In
/// `dim` the indexed operand does not advance: the index gives the position.
struct IndexedWalk {
  Shape shape;
  Shape indexed;  ///< strides, with 0 in `dim`
  Shape index;    ///< strides; 0 where the indices are repeated
  Shape other;    ///< strides
  int dim = 0;
  std::int64_t stride = 0;  ///< of the indexed dim
  std::int64_t extent = 0;  ///< indices are inside [least, extent)
  std::int64_t least = 0;   ///< 0; or -extent: negative indices count from the back
  int named_dim = 0;        ///< the user's number of `dim`, for BadIndex

  std::int64_t count() const { return shape[dim]; }  ///< indices of a line along `dim`
  std::int64_t lines() const { return count() == 0 ? 0 : shape.numel() / count(); }
};

/// y = the elements of x that indices select along one dim.
struct GatherKernel {
  static constexpr const char* kName = "gather";
  /// x and y of one dtype, index i64 or i32; any strides.
  struct Args {
    ConstView x;
    ConstView index;
    View y;
    IndexedWalk walk;
    BadIndex bad_index = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.index);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// Elements of src go to the positions that indices select along one dim of y: the inverse of
/// gather.
enum class ScatterMode : std::uint8_t {
  kAssign,  ///< any dtype; for duplicate indices the last one stays
  // Fold into the present value, in the order of the indices. A CPU folds 16-bit elements in f32 and
  // rounds once; a GPU takes f32, f64, i64, i32 and u8.
  kAdd,       ///< integers wrap around
  kMultiply,  ///< integers wrap around
  kMaximum,   ///< NaN if either is
  kMinimum,   ///< NaN if either is
};

struct ScatterKernel {
  static constexpr const char* kName = "scatter";
  /// One destination, and the element along `dim` that goes there.
  struct Destination {
    std::int64_t place;
    std::int64_t source;
  };
  /// src and y have one dtype, index is i64 or i32; any strides. On a CPU any floating src can be
  /// folded into a floating y. Elements that no index selects are not changed. Elements at index
  /// `skip` are left out.
  struct Args {
    ConstView src;
    ConstView index;
    View y;
    IndexedWalk walk;
    ScatterMode mode = ScatterMode::kAssign;
    std::int64_t skip = -1;
    BadIndex bad_index = nullptr;

    /// Lines that a thread of a CPU takes at a time, from shapes alone.
    std::int64_t piece() const {
      return std::max<std::int64_t>(256, (1 << 15) / std::max<std::int64_t>(1, walk.count()));
    }
    std::int64_t pieces() const { return (walk.lines() + piece() - 1) / piece(); }
    /// Whether a line has so many indices that converting all of its 16-bit elements costs less
    /// than sorting the indices.
    bool whole_lines() const { return walk.count() * 16 >= walk.extent; }
    /// For folds into 16-bit elements: a line in f32, or sorted indices of a line.
    std::size_t buffer_bytes() const {
      if (mode == ScatterMode::kAssign || dtype_size(y.dtype) != 2) return 0;
      const std::size_t line = whole_lines() ? static_cast<std::size_t>(walk.extent) * 4 : 0;
      return std::max(line, static_cast<std::size_t>(walk.count()) * sizeof(Destination));
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.src);
    f(a.index);
    f(a.y);
  }
  static std::size_t workspace(const Args& a);
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

/// One index instead of several: row-major positions from the indices of each dim.
struct LinearIndexKernel {
  static constexpr const char* kName = "linear_index";
  /// y = indices[0] * extents[1] * ... + indices[1] * extents[2] * ... + ...; the indices, i64 or
  /// i32, have y's shape and any strides; negative ones count from the back. y is i64 and
  /// contiguous.
  struct Args {
    std::array<ConstView, kMaxDims> indices;  ///< one per entry of extents
    Shape extents;
    View y;
    int named_dim = 0;  ///< the user's number of the first dim, for BadIndex
    BadIndex bad_index = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (int d = 0; d < a.extents.ndim(); ++d) f(a.indices[static_cast<std::size_t>(d)]);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// The positions of the elements that are not 0, in row-major order. NaN is not 0.
struct NonzeroKernel {
  static constexpr const char* kName = "nonzero";
  /// x has any dtype and strides; y [places, x's dims] is i64, with any strides: row i is the
  /// position of the i-th such element. Positions for which y has no row are left out, rows that
  /// are left over hold `fill`.
  struct Args {
    ConstView x;
    View y;
    std::int64_t fill = -1;

    /// The elements are counted in chunks first, then each chunk writes its positions.
    std::int64_t chunk() const { return std::max<std::int64_t>(1024, (x.numel() + 4095) / 4096); }
    std::int64_t chunks() const { return (x.numel() + chunk() - 1) / chunk(); }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  /// For each chunk, how many elements are in the chunks before it; then the number of all.
  static std::size_t workspace(const Args& a) {
    return static_cast<std::size_t>(a.chunks() + 1) * sizeof(std::int64_t);
  }
  static std::size_t cuda_workspace(const Args& a) { return workspace(a); }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
