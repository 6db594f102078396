#pragma once

/// SwiGLU: silu(gate) * up, with silu(x) = x sigmoid(x) (Shazeer, "GLU variants improve
/// transformer", 2020).
///
/// All tensors are contiguous, of one shape and one floating dtype. silu, and the product of dy and
/// up, are rounded to the dtype before they are used, so results have the bits of the operations one
/// after another.

#include <cstdint>

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Elements that a CPU thread takes at a time, whose intermediate results stay in its cache.
inline constexpr std::int64_t kSwigluPiece = std::int64_t{1} << 14;

inline std::size_t swiglu_scratch(const ConstView& like) {
  const std::int64_t pieces = (like.numel() + kSwigluPiece - 1) / kSwigluPiece;
  return row_scratch(pieces, kSwigluPiece,
                     static_cast<std::size_t>(kSwigluPiece) * dtype_size(like.dtype));
}

struct SwigluKernel {
  static constexpr const char* kName = "swiglu";
  /// y = silu(gate) * up. y may be one of the operands.
  struct Args {
    ConstView gate;
    ConstView up;
    View y;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.gate);
    f(a.up);
    f(a.y);
  }
  static std::size_t workspace(const Args& a) { return swiglu_scratch(a.gate); }
  static std::size_t cuda_workspace(const Args& /*args*/) { return 0; }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct SwigluBackwardKernel {
  static constexpr const char* kName = "swiglu_backward";
  /// dgate = dy * up * silu'(gate), dup = dy * silu(gate); either may be undefined. They overlap no
  /// operand.
  struct Args {
    ConstView dy;
    ConstView gate;
    ConstView up;
    View dgate;
    View dup;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.gate);
    f(a.up);
    if (a.dgate.defined()) f(a.dgate);
    if (a.dup.defined()) f(a.dup);
  }
  static std::size_t workspace(const Args& a) { return swiglu_scratch(a.gate); }
  static std::size_t cuda_workspace(const Args& /*args*/) { return 0; }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
