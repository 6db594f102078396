#pragma once

/// Two-layer perceptrons: MLP of the sharding tests and a stack of three; MLPModule, 10 -> 16 ->
/// 10, of the tests of tensor-parallel plans by name, and a stack of it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/nn/buffer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"

namespace tessera::testing {

// The two-layer perceptron of the sharding tests, and a stack of three.
struct MLPOptions {
  std::int64_t dim = 0;         ///< required, >= 1
  std::int64_t multiplier = 4;  ///< the hidden width is multiplier * dim
  bool bias = true;
  bool with_buffer = false;
  DType dtype = DType::kF32;
};

// relu(out_proj(relu(in_proj(x)))) + buffer: [..., dim] -> [..., dim]. The buffer [dim] is drawn
// from a standard normal distribution by initialize() and reinitialize(); PyTorch's
// reset_parameters is therefore reinitialize(). Used by nearly all tests of fully_shard.
class MLP final : public nn::Layer<MLP> {
 public:
  using Options = MLPOptions;
  explicit MLP(const MLPOptions& options);
  Variable forward(const Variable& x);

 private:
  nn::Linear in_proj_, out_proj_;
  std::optional<nn::Buffer> buffer_;
};

struct MLPStackOptions {
  std::int64_t dim = 0;            ///< required, >= 1
  bool with_seq_parallel = false;  ///< a LayerNorm without bias at the end
  DType dtype = DType::kF32;
};

// MLPs "0", "1", "2" with the multipliers 3, 4, 3 (3 is deliberately uneven over 2 ranks), and the
// norm "3". Used by tests with two meshes (tensor parallelism inside data parallelism), and by
// tests of clipping and of replicate. The plan of parallelize() in PyTorch's FSDP tests names
// in_proj and out_proj of each MLP by these paths.
class MLPStack final : public nn::Layer<MLPStack> {
 public:
  using Options = MLPStackOptions;
  explicit MLPStack(const MLPStackOptions& options);
  Variable forward(Variable x);

  /// The MLPs, in order: each is a group, and may be recomputed. The norm belongs to the root.
  std::vector<nn::Module*> groups() { return {&first_, &second_, &third_}; }

 private:
  MLP first_, second_, third_;
  std::optional<nn::LayerNorm> norm_;
};

// Perceptrons 10 -> 16 -> 10 for tests of tensor-parallel plans by name: "net1" column-wise, "net2"
// row-wise. PyTorch's constructor seeds them with 5: initialize with {.seed = 5}.
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
  int layers = 2;
  DType dtype = DType::kF32;
};

// MLPModules "layers.0", "layers.1", ... one after another; each may be a group.
class MLPStacked final : public nn::Layer<MLPStacked> {
 public:
  using Options = MLPStackedOptions;
  explicit MLPStacked(const MLPStackedOptions& options = {}) {
    for (int i = 0; i < options.layers; ++i) layers_.add<MLPModule>({.dtype = options.dtype});
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
