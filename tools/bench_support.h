#pragma once

// What the benchmarks of sharded training share.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/transformer.h"

namespace tessera {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Microseconds that `body` takes on the calling thread.
template <class Body>
double microseconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// The bundled transformer with 25.6 million elements in 8 blocks.
inline constexpr models::ModelArgs kBenchTransformer = {
    .n_layers = 8, .vocab_size = 512, .max_seq_len = 256, .dim = 512, .n_heads = 8, .dropout_p = 0};

// Each block a group, and the root the rest.
inline void shard_transformer(models::Transformer& model, const fsdp::FullyShardOptions& options) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::fully_shard(block, options);
  fsdp::fully_shard(model, options);
}

}  // namespace tessera
