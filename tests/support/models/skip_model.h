// Three linear layers, some of which are not sharded on their own: SkipModule, NestedLinear and
// SkipModel of PyTorch's FSDP tests, for tests of whether a module inside another one becomes a
// group. All are x [rows, 10] -> [rows, 10], without bias.
#pragma once

#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

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

}  // namespace tessera::testing
