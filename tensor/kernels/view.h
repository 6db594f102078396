#pragma once

/// Tensors in the form that kernels take: plain data that a closure or a CUDA kernel captures by
/// value. Standard library only.

#include <cstddef>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"

struct CUstream_st;  // of the CUDA runtime

namespace tessera {

/// Read-only view. `data` already includes the offset.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;              ///< in elements
  std::uint64_t storage = 0;  ///< for the trace
  std::int64_t offset = 0;    ///< for the trace, in elements

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  bool defined() const { return data != nullptr || storage != 0; }
  std::int64_t numel() const { return shape.numel(); }
};

/// Writable view.
struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;
  std::uint64_t storage = 0;
  std::int64_t offset = 0;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  bool defined() const { return data != nullptr || storage != 0; }
  std::int64_t numel() const { return shape.numel(); }
};

/// An input of an elementwise kernel: a view with the result's shape, or one number.
struct Operand {
  ConstView view;
  double number = 0;

  Operand() = default;
  Operand(const ConstView& v) : view(v) {}
  Operand(double n) : number(n) {}
  bool is_number() const { return !view.defined(); }
};

/// A CUDA stream (cudaStream_t), without the toolkit's headers.
using CudaStream = ::CUstream_st*;

/// Scratch memory of one kernel run.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace tessera
