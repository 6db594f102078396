// Two linear layers side by side: DoubleLinear of PyTorch's FSDP tests, for tests of several
// results, and of a layer that no forward uses.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

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

}  // namespace tessera::testing
