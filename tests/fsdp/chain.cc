#include "tessera/tests/fsdp/chain.h"

#include "tessera/autograd/ops/ops.h"

namespace tessera::testing {

Block::Block(std::int64_t in, std::int64_t out, DType dtype)
    : linear_({.in = in, .out = out, .dtype = dtype}) {
  register_module("linear", linear_);
}

Variable Block::forward(const Variable& x) { return gelu(linear_(x)); }

Chain::Chain(const ChainOptions& options) {
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

Variable Chain::forward(Variable x) {
  if (stem_) x = (*stem_)(x);
  for (auto& block : blocks_) x = (*block)(x);
  return head_ ? (*head_)(x) : x;
}

fsdp::PrefetchOptions prefetch_of(bool forward, bool backward) {
  return {.forward = forward ? 1 : 0,
          .backward = backward ? fsdp::BackwardPrefetch::kPre : fsdp::BackwardPrefetch::kNone};
}

void shard_chain(Chain& chain, const fsdp::FullyShardOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(chain, {.mesh = options.mesh});
}

}  // namespace tessera::testing
