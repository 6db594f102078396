#pragma once

/// Kernels that write by position or mask: arange, masked_fill, masked_scatter, triangles, and the reverse
/// order.

#include <array>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// y[i] = first + step i; for i >= `mirror`, last - step (n - 1 - i).
struct ArangeKernel {
  static constexpr const char* kName = "arange";
  /// y is 1-D and contiguous, of any dtype that can hold the numbers; computed in f64. Computing
  /// the second half from the end makes both ends exact if the step is rounded.
  struct Args {
    View y;
    double first = 0;
    double step = 1;
    double last = 0;
    std::int64_t mirror = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// y = a number where a mask is set, x elsewhere.
struct MaskedFillKernel {
  static constexpr const char* kName = "masked_fill";
  /// One shape, any strides; x and y of one dtype, mask bool or u8. y may be x.
  struct Args {
    ConstView x;
    ConstView mask;
    View y;
    double value = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.mask);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// y = the next element of a source where a mask is set, x elsewhere.
struct MaskedScatterKernel {
  static constexpr const char* kName = "masked_scatter";
  /// x, mask, places and y have one shape, any strides; x, source and y one dtype. mask is bool; places, i64,
  /// say how many entries of the mask are set up to each, itself included. source [n] is contiguous; entries
  /// beyond it get its last element, and if it has none that of x: the operation has them refused. y may
  /// be x.
  struct Args {
    ConstView x;
    ConstView mask;
    ConstView places;
    ConstView source;
    View y;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.mask);
    f(a.places);
    f(a.source);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// Matrices with zeros above or below a diagonal.
struct TriangleKernel {
  static constexpr const char* kName = "triangle";
  /// x and y [..., rows, columns] have one dtype, any strides. Element (i, j) is kept if j - i <=
  /// `diagonal`; with `upper`, if j - i >= `diagonal`.
  struct Args {
    ConstView x;
    View y;
    std::int64_t diagonal = 0;
    bool upper = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// The elements in reverse order along some dims.
struct FlipKernel {
  static constexpr const char* kName = "flip";
  /// x and y of one shape and dtype, any strides.
  struct Args {
    ConstView x;
    View y;
    std::array<bool, kMaxDims> reversed{};
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
