#pragma once

/// Matrices side by side.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Each row of y = the rows of the parts, one after another.
struct CatKernel {
  static constexpr const char* kName = "cat";
  /// y [rows, columns] and at least one part [rows, columns of its own], which add up to y's. One dtype, columns of unit
  /// stride, rows any number of elements apart.
  struct Args {
    std::vector<ConstView> parts;
    View y;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const ConstView& part : a.parts) f(part);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  /// One copy for each part.
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
