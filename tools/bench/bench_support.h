#pragma once

/// Shared by the benchmarks of sharded training: a transformer whose blocks are groups, and a chain
/// of linear layers, each of which can be a group.

#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {

// Shared by the benchmarks of sharded training.

// The bundled transformer with 25.6 million elements in 8 blocks.
inline constexpr models::ModelArgs kBenchTransformer = {
    .layers = 8, .vocab_size = 512, .max_seq_len = 256, .dim = 512, .heads = 8, .dropout = 0};

// Each block is a group; the root has the rest.
inline void shard_transformer(models::Transformer& model, const fsdp::FullyShardOptions& options) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::fully_shard(block, options);
  fsdp::fully_shard(model, options);
}

// A chain of linear layers, for benchmarks of sharding: each layer can be a group.
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
