#pragma once

/// The model of many FSDP tests: a chain of blocks of odd sizes, each a group of its own.

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
  std::vector<std::int64_t> widths = {7, 5, 9, 3};  ///< block i maps widths[i] to widths[i + 1]
  std::int64_t classes = 4;  ///< outputs of the root's own layer after the blocks; 0: there is none
  bool stem = false;  ///< another layer before the blocks, so that their inputs have gradients
  DType dtype = DType::kF64;
};

/// Blocks in sequence, then a linear layer that belongs to the root.
class Chain final : public nn::Layer<Chain> {
 public:
  explicit Chain(const ChainOptions& options);
  Variable forward(Variable x);
  const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Linear> stem_, head_;
};

/// Prefetches one group ahead in each direction that is true.
fsdp::PrefetchOptions prefetch_of(bool forward, bool backward);

/// Shards each block, then the root.
void shard_chain(Chain& chain, const fsdp::FullyShardOptions& options);

}  // namespace tessera::testing
