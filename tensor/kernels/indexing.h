#pragma once

/// Kernels with indices: gather, scatter, and the combination of several indices into one.

#include <array>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Shared by kernels that use indices.

/// Called by a kernel that finds an index outside [0, extent); throws. A function pointer, because
/// kernel builds do not link the code that formats the message. `position` counts the indices in
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
  std::int64_t extent = 0;  ///< indices are inside [0, extent)
  int named_dim = 0;        ///< the user's number of `dim`, for BadIndex
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
  kAdd,     ///< f32, f64, i64, i32, u8; in the order of the indices, integers wrap around
};

struct ScatterKernel {
  static constexpr const char* kName = "scatter";
  /// src and y have one dtype, index is i64 or i32; any strides. Elements that no index selects are
  /// not changed. Elements at index `skip` are left out.
  struct Args {
    ConstView src;
    ConstView index;
    View y;
    IndexedWalk walk;
    ScatterMode mode = ScatterMode::kAssign;
    std::int64_t skip = -1;
    BadIndex bad_index = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.src);
    f(a.index);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

/// One index instead of several: row-major positions from the indices of each dim.
struct LinearIndexKernel {
  static constexpr const char* kName = "linear_index";
  /// y = indices[0] * extents[1] * ... + indices[1] * extents[2] * ... + ...; the indices, i64 or
  /// i32, have y's shape and any strides; y is i64 and contiguous.
  struct Args {
    std::array<ConstView, kMaxDims> indices;  ///< one per entry of extents
    Shape extents;
    View y;
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

}  // namespace tessera
