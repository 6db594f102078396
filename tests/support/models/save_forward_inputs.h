// Modules that keep the arguments of their calls, for tests of the dtype of inputs inside a model
// under mixed precision. Each module keeps its own; in PyTorch's tests all write into one map.
#pragma once

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

struct SaveForwardInputsOptions {
  bool cast_forward_inputs = false;  ///< the layer itself casts to the dtype of its weight
  DType dtype = DType::kF32;
};

// Linear(100, 100) named "l".
class SaveForwardInputsModule final : public nn::Layer<SaveForwardInputsModule> {
 public:
  using Options = SaveForwardInputsOptions;
  explicit SaveForwardInputsModule(const SaveForwardInputsOptions& options = {})
      : l_({.in = 100, .out = 100, .dtype = options.dtype}), cast_(options.cast_forward_inputs) {
    register_module("l", l_);
  }
  Variable forward(const Variable& x) {
    forward_input_ = x.tensor();
    return l_(cast_ ? cast(x, l_.weight().value().dtype()) : x);
  }
  /// The input before the cast; undefined until the first call.
  const Tensor& forward_input() const { return forward_input_; }

 private:
  nn::Linear l_;
  bool cast_;
  Tensor forward_input_;
};

// c2(c1(x)); both are groups.
class SaveForwardInputsModel final : public nn::Layer<SaveForwardInputsModel> {
 public:
  using Options = SaveForwardInputsOptions;
  explicit SaveForwardInputsModel(const SaveForwardInputsOptions& options = {})
      : c1_(options), c2_(options) {
    register_module("c1", c1_);
    register_module("c2", c2_);
  }
  Variable forward(const Variable& x) {
    forward_input_ = x.tensor();
    return c2_(c1_(x));
  }
  const Tensor& forward_input() const { return forward_input_; }
  SaveForwardInputsModule& c1() { return c1_; }
  SaveForwardInputsModule& c2() { return c2_; }

 private:
  SaveForwardInputsModule c1_, c2_;
  Tensor forward_input_;
};

}  // namespace tessera::testing
