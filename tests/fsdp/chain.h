#pragma once

/// The model that FSDP tests train: a chain of blocks, each a group of its own, over odd sizes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

/// gelu(x W^T + b).
class Block final : public nn::Layer<Block> {
 public:
  Block(std::int64_t in, std::int64_t out, DType dtype)
      : linear_({.in = in, .out = out, .dtype = dtype}) {
    register_module("linear", linear_);
  }
  Variable forward(const Variable& x) { return gelu(linear_(x)); }

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
  explicit Chain(const ChainOptions& options) {
    if (options.stem) {
      const std::int64_t width = options.widths.front();
      stem_ = std::make_unique<nn::Linear>(
          nn::LinearOptions{.in = width, .out = width, .dtype = options.dtype});
      register_module("stem", *stem_);
    }
    for (std::size_t i = 0; i + 1 < options.widths.size(); ++i) {
      blocks_.push_back(
          std::make_unique<Block>(options.widths[i], options.widths[i + 1], options.dtype));
      register_module("block" + std::to_string(i), *blocks_.back());
    }
    if (options.classes == 0) return;
    head_ = std::make_unique<nn::Linear>(nn::LinearOptions{
        .in = options.widths.back(), .out = options.classes, .dtype = options.dtype});
    register_module("head", *head_);
  }
  Variable forward(Variable x) {
    if (stem_) x = (*stem_)(x);
    for (auto& block : blocks_) x = (*block)(x);
    return head_ ? (*head_)(x) : x;
  }
  const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Linear> stem_, head_;
};

/// Gathers one group ahead in each direction, or none.
inline fsdp::PrefetchOptions prefetch_of(bool forward, bool backward) {
  return {.forward = forward ? 1 : 0,
          .backward = backward ? fsdp::BackwardPrefetch::kPre : fsdp::BackwardPrefetch::kNone};
}

/// Each block, then the root.
inline void shard_chain(Chain& chain, const fsdp::FullyShardOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(chain, {.mesh = options.mesh});
}

}  // namespace tessera::testing
