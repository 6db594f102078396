#pragma once

/// One tensor of a model that is state but not trained: running statistics, tables, masks.
///
///     BatchNorm() : mean_({.shape = {64}, .init = init::zeros()}) {
///       register_buffer("running_mean", mean_);
///     }
///
/// A shared handle, like Parameter: constructing allocates nothing, nn::initialize (or a load)
/// materialises it and computes its elements by the initializer it was given, any time again to the
/// same values. It is whole on every rank, has no gradient, and its dtype may be any. Handles copy
/// but do not assign. A handle is used by the thread of its rank.

#include <memory>
#include <string>

#include "tessera/nn/init.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

struct BufferOptions {
  Shape shape;
  DType dtype = DType::kF32;
  Initializer init;        ///< required: computes the elements
  bool persistent = true;  ///< part of the state dict; else computed anew after each load
  /// Module::to(dtype) leaves it as it is: for tables whose precision others depend on.
  bool keep_dtype = false;
};

class Buffer {
 public:
  /// Throws InvalidArgument for a negative extent or a missing initializer.
  explicit Buffer(BufferOptions options);
  Buffer(const Buffer& other);  ///< another handle to the same buffer
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// As Parameter::name().
  const std::string& name() const;
  const Shape& shape() const;
  DType dtype() const;
  bool is_persistent() const;
  bool keeps_dtype() const;
  bool is_materialized() const;
  bool same_as(const Buffer& other) const { return impl_ == other.impl_; }
  /// Identity, for maps.
  const void* id() const { return impl_.get(); }

  /// The elements; write into them to change the buffer. Throws StateError naming the buffer before
  /// it is materialised.
  const Tensor& tensor() const;

  /// Allocates on `device`, in MemoryCategory::kOther. No-op when materialised.
  void materialize(Device device);
  /// Computes the elements. Throws StateError before materialize().
  void reset(random::Key key);
  /// Moves and converts; see Module::to. The shape stays, the tensor is another.
  void to(Device device, DType dtype);
  void set_name(std::string name);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  bool original_ = false;  ///< constructed from options: initialize() expects it to be registered
};

}  // namespace tessera::nn
