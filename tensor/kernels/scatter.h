#pragma once

/// Elements of src go to the positions that indices select along one dim of y: the inverse of
/// gather.

#include "tessera/tensor/kernels/indexed.h"

namespace tessera {

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

}  // namespace tessera
