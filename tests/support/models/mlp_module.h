// Perceptrons 10 -> 16 -> 10 for tests of tensor-parallel plans by name: "net1" column-wise, "net2"
// row-wise. PyTorch's constructor seeds them with 5: initialize with {.seed = 5}.
#pragma once

#include <functional>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/module_list.h"

namespace tessera::testing {

struct MLPModuleOptions {
  bool bias = true;
  DType dtype = DType::kF32;
};

// net2(relu(net1(x))): [..., 10] -> [..., 10].
class MLPModule final : public nn::Layer<MLPModule> {
 public:
  using Options = MLPModuleOptions;
  explicit MLPModule(const MLPModuleOptions& options = {})
      : net1_({.in = 10, .out = 16, .bias = options.bias, .dtype = options.dtype}),
        net2_({.in = 16, .out = 10, .bias = options.bias, .dtype = options.dtype}) {
    register_module("net1", net1_);
    register_module("relu", relu_);
    register_module("net2", net2_);
  }
  Variable forward(const Variable& x) { return net2_(relu_(net1_(x))); }

 private:
  nn::Linear net1_;
  nn::ReLU relu_;
  nn::Linear net2_;
};

struct MLPStackedOptions {
  int n_layers = 2;
  DType dtype = DType::kF32;
};

// MLPModules "layers.0", "layers.1", ... one after another; each may be a group.
class MLPStacked final : public nn::Layer<MLPStacked> {
 public:
  using Options = MLPStackedOptions;
  explicit MLPStacked(const MLPStackedOptions& options = {}) {
    for (int i = 0; i < options.n_layers; ++i) layers_.add<MLPModule>({.dtype = options.dtype});
    register_module("layers", layers_);
  }
  Variable forward(Variable x) {
    for (MLPModule& layer : layers_.as<MLPModule>()) x = layer(x);
    return x;
  }
  std::vector<nn::Module*> groups() {
    std::vector<nn::Module*> out;
    for (nn::Module& layer : layers_) out.push_back(&layer);
    return out;
  }

 private:
  nn::ModuleList layers_;
};

}  // namespace tessera::testing
