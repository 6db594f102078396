#pragma once

/// Tensors one after another.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// y = the parts, one after another along a dim.
struct CatKernel {
  static constexpr const char* kName = "cat";
  /// At least one part. Parts and y have one dtype, any strides, and one shape but for `dim`, where the extents
  /// of the parts add up to y's.
  struct Args {
    std::vector<ConstView> parts;
    View y;
    int dim = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const ConstView& part : a.parts) f(part);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);

  /// copy(args) for the copy of each part that has elements.
  template <class Copy>
  static void for_each_copy(const Args& a, const Copy& copy) {
    std::int64_t start = 0;
    for (const ConstView& part : a.parts) {
      if (part.numel() > 0) {
        View y = a.y;
        const std::int64_t elements = start * y.strides[a.dim];
        y.data = static_cast<std::byte*>(y.data) +
                 elements * static_cast<std::int64_t>(dtype_size(y.dtype));
        y.offset += elements;
        y.shape = part.shape;
        copy(AxpbyKernel::Args{.x = part, .y = y});
      }
      start += part.shape[a.dim];
    }
  }
};

}  // namespace tessera
