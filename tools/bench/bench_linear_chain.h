#pragma once

// A chain of linear layers, for benchmarks of sharding: each layer can be a group.

#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"

namespace tessera {

class LinearChain final : public nn::Layer<LinearChain> {
 public:
  LinearChain(int layers, const nn::LinearOptions& options) {
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(std::make_unique<nn::Linear>(options));
      register_module("layer" + std::to_string(i), *layers_.back());
    }
  }
  Variable forward(Variable x) {
    for (const auto& layer : layers_) x = (*layer)(x);
    return x;
  }
  const std::vector<std::unique_ptr<nn::Linear>>& layers() const { return layers_; }

 private:
  std::vector<std::unique_ptr<nn::Linear>> layers_;
};

}  // namespace tessera
