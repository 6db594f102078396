#pragma once

/// Small models of PyTorch's FSDP tests: Net, DoubleLinear, SkipModel, and SaveForwardInputsModel,
/// whose modules keep the arguments of their calls.

#include <cstdint>
#include <tuple>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

/// Small models of PyTorch's FSDP tests: Net, DoubleLinear, SkipModel.

/// Three Linear(2, 2) in sequence: Net of PyTorch's FSDP tests, for tests of replicate's module
/// registry.
struct NetOptions {
  DType dtype = DType::kF32;
};

class Net final : public nn::Layer<Net> {
 public:
  using Options = NetOptions;
  explicit Net(const NetOptions& options = {})
      : fc1_({.in = 2, .out = 2, .dtype = options.dtype}),
        fc2_({.in = 2, .out = 2, .dtype = options.dtype}),
        fc3_({.in = 2, .out = 2, .dtype = options.dtype}) {
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
    register_module("fc3", fc3_);
  }
  Variable forward(const Variable& x) { return fc3_(fc2_(fc1_(x))); }

 private:
  nn::Linear fc1_, fc2_, fc3_;
};

/// Two linear layers side by side: DoubleLinear of PyTorch's FSDP tests, for tests of several
/// results, and of a layer that no forward uses.
struct DoubleLinearOptions {
  std::int64_t dim = 0;    ///< required, >= 1
  bool use_second = true;  ///< false: lin2 is never called
  DType dtype = DType::kF32;
};

class DoubleLinear final : public nn::Layer<DoubleLinear> {
 public:
  using Options = DoubleLinearOptions;
  explicit DoubleLinear(const DoubleLinearOptions& options)
      : lin1_({.in = options.dim, .out = options.dim, .dtype = options.dtype}),
        lin2_({.in = options.dim, .out = options.dim, .dtype = options.dtype}),
        use_second_(options.use_second) {
    register_module("lin1", lin1_);
    register_module("lin2", lin2_);
    register_module("relu", relu_);
  }

  /// Returns relu(lin1(x)) and relu(lin2(x)); the second is undefined without use_second.
  std::tuple<Variable, Variable> forward(const Variable& x) {
    Variable first = relu_(lin1_(x));
    return {first, use_second_ ? relu_(lin2_(x)) : Variable()};
  }

  std::vector<nn::Module*> groups() { return {&lin1_, &lin2_}; }

 private:
  nn::Linear lin1_, lin2_;
  nn::ReLU relu_;
  bool use_second_;
};

/// Three linear layers, some of which are not sharded on their own: SkipModule, NestedLinear and
/// SkipModel of PyTorch's FSDP tests, for tests of whether a module inside another one becomes a
/// group. All are x [rows, 10] -> [rows, 10], without bias.
struct SkipModelOptions {
  /// "nested_linear" is always a group. true: "nested_linear.nested_linear" inside it is one, too,
  /// so no parameter is left for the outer one.
  bool double_nest = false;
  DType dtype = DType::kF32;
};

// Never a group: its parameters are the root's.
class SkipModule final : public nn::Layer<SkipModule> {
 public:
  explicit SkipModule(DType dtype) : lin_({.in = 10, .out = 10, .bias = false, .dtype = dtype}) {
    register_module("lin", lin_);
  }
  Variable forward(const Variable& x) { return lin_(x); }

 private:
  nn::Linear lin_;
};

class NestedLinear final : public nn::Layer<NestedLinear> {
 public:
  explicit NestedLinear(DType dtype)
      : nested_linear_({.in = 10, .out = 10, .bias = false, .dtype = dtype}) {
    register_module("nested_linear", nested_linear_);
  }
  Variable forward(const Variable& x) { return nested_linear_(x); }
  nn::Linear& nested_linear() { return nested_linear_; }

 private:
  nn::Linear nested_linear_;
};

// nested_linear(linear_skip(linear(x))).
class SkipModel final : public nn::Layer<SkipModel> {
 public:
  using Options = SkipModelOptions;
  explicit SkipModel(const SkipModelOptions& options = {})
      : linear_({.in = 10, .out = 10, .bias = false, .dtype = options.dtype}),
        linear_skip_(options.dtype),
        nested_linear_(options.dtype),
        double_nest_(options.double_nest) {
    register_module("linear", linear_);
    register_module("linear_skip", linear_skip_);
    register_module("nested_linear", nested_linear_);
  }
  Variable forward(const Variable& x) { return nested_linear_(linear_skip_(linear_(x))); }

  /// Inner ones first; "linear" and "linear_skip" belong to the root.
  std::vector<nn::Module*> groups() {
    if (double_nest_) return {&nested_linear_.nested_linear(), &nested_linear_};
    return {&nested_linear_};
  }

 private:
  nn::Linear linear_;
  SkipModule linear_skip_;
  NestedLinear nested_linear_;
  bool double_nest_;
};

// Modules that keep the arguments of their calls, for tests of the dtype of inputs inside a model
// under mixed precision. Each module keeps its own; in PyTorch's tests all write into one map.
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
