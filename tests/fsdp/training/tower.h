#pragma once

/// Perceptrons in sequence: the model of the tests with several mesh axes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/recompute.h"

namespace tessera::testing {

/// gelu(out_proj(gelu(in_proj(x)))): [..., dim] -> [..., dim].
class Perceptron final : public nn::Layer<Perceptron> {
 public:
  Perceptron(std::int64_t dim, std::int64_t multiplier, DType dtype)
      : in_proj_({.in = dim, .out = multiplier * dim, .dtype = dtype}),
        out_proj_({.in = multiplier * dim, .out = dim, .dtype = dtype}) {
    register_module("in_proj", in_proj_);
    register_module("out_proj", out_proj_);
  }
  Variable forward(const Variable& x) { return gelu(out_proj_(gelu(in_proj_(x)))); }
  nn::Linear& in_proj() { return in_proj_; }
  nn::Linear& out_proj() { return out_proj_; }

 private:
  nn::Linear in_proj_, out_proj_;
};

struct TowerOptions {
  std::int64_t dim = 3;
  bool recompute = false;  ///< every perceptron's forward is recomputed in backward
  DType dtype = DType::kF64;
};

/// A norm without bias, which belongs to the root, and the perceptrons "mlp0", "mlp1", "mlp2"; the
/// middle one is wider.
class Tower final : public nn::Layer<Tower> {
 public:
  explicit Tower(const TowerOptions& options)
      : norm_({.shape = {options.dim}, .bias = false, .dtype = options.dtype}) {
    register_module("norm", norm_);
    for (const std::int64_t multiplier : {3, 4, 3}) {
      mlps_.push_back(std::make_unique<Perceptron>(options.dim, multiplier, options.dtype));
      if (options.recompute) nn::recompute(*mlps_.back());
      register_module("mlp" + std::to_string(mlps_.size() - 1), *mlps_.back());
    }
  }
  Variable forward(const Variable& x) {
    Variable h = norm_(x);
    for (const auto& mlp : mlps_) h = (*mlp)(h);
    return h;
  }
  Perceptron& mlp(std::size_t i) { return *mlps_.at(i); }
  std::vector<nn::Module*> mlps() const {
    std::vector<nn::Module*> out;
    for (const auto& mlp : mlps_) out.push_back(mlp.get());
    return out;
  }

 private:
  nn::LayerNorm norm_;
  std::vector<std::unique_ptr<Perceptron>> mlps_;
};

/// Shards each perceptron, then the root, with equal options.
inline void shard_tower(Tower& tower, const fsdp::FullyShardOptions& options) {
  for (nn::Module* mlp : tower.mlps()) fsdp::fully_shard(*mlp, options);
  fsdp::fully_shard(tower, options);
}

}  // namespace tessera::testing
