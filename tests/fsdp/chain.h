#pragma once

/// The model that FSDP tests train: a chain of blocks, each a group of its own, over odd sizes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

/// gelu(x W^T + b).
class Block final : public nn::Layer<Block> {
 public:
  Block(std::int64_t in, std::int64_t out, DType dtype);
  Variable forward(const Variable& x);

 private:
  nn::Linear linear_;
};

struct ChainOptions {
  std::vector<std::int64_t> widths = {7, 5, 9, 3};  ///< a block between each two
  std::int64_t classes = 4;  ///< the root's own layer, after the blocks; 0: none
  bool stem = false;  ///< another one ahead of the blocks, so that their inputs have gradients
  DType dtype = DType::kF64;
};

/// Blocks in a row, then a linear layer that belongs to the root.
class Chain final : public nn::Layer<Chain> {
 public:
  explicit Chain(const ChainOptions& options);
  Variable forward(Variable x);
  const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Linear> stem_, head_;
};

/// Gathers one group ahead in each direction, or none.
fsdp::PrefetchOptions prefetch_of(bool forward, bool backward);

/// Each block, then the root.
void shard_chain(Chain& chain, const fsdp::FullyShardOptions& options);

}  // namespace tessera::testing
