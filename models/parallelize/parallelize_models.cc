// How each model is sharded over ranks: its groups, recomputation and tensor-parallel layers.

#include <algorithm>

#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/handle.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

distributed::Placement logits_layout(const ParallelizeOptions& options) {
  if (options.loss_parallel) return distributed::Shard{-1};
  return distributed::Replicate{};
}

// How GPT is sharded over ranks.
//
// - Groups: each block; the root has embeddings, last norm and head, which may be tied.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads, the feed-forward's inner width and the vocabulary are sharded. The
//   token embedding and the head (one parameter if they are tied) are the largest parameters of
//   small models. Positions and norms are replicated.
distributed::ParallelPlan gpt_plan(const ParallelizeOptions& options) {
  using distributed::ColwiseParallel;
  using distributed::HeadParallel;
  using distributed::RowwiseParallel;
  return {{"token_embedding", RowwiseParallel{}},
          {"blocks.*.attention", HeadParallel{}},
          {"blocks.*.feed_forward.up", ColwiseParallel{}},
          {"blocks.*.feed_forward.down", RowwiseParallel{}},
          {"head", ColwiseParallel{.output_layout = logits_layout(options)}}};
}

}  // namespace

void parallelize(Gpt& model, const ParallelizeOptions& options) {
  cut_layers(model, options, gpt_plan(options));
  for (PreNormBlock& block : model.blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

namespace {

// How LLaMA is sharded over ranks.
//
// - Groups: each block; the root has token embedding, last norm and head.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads (the number of key-value heads must be a multiple of the ranks), the
//   feed-forward's inner width and the vocabulary are sharded; norms are replicated.
distributed::ParallelPlan llama_plan(const ParallelizeOptions& options) {
  using distributed::ColwiseParallel;
  using distributed::HeadParallel;
  using distributed::RowwiseParallel;
  return {{"token_embedding", RowwiseParallel{}},
          {"blocks.*.attention", HeadParallel{}},
          {"blocks.*.feed_forward.gate", ColwiseParallel{}},
          {"blocks.*.feed_forward.up", ColwiseParallel{}},
          {"blocks.*.feed_forward.down", RowwiseParallel{}},
          {"head", ColwiseParallel{.output_layout = logits_layout(options)}}};
}

}  // namespace

void parallelize(Llama& model, const ParallelizeOptions& options) {
  cut_layers(model, options, llama_plan(options));
  for (LlamaBlock& block : model.blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

namespace {

// How the encoder-decoder is sharded over ranks.
//
// - Groups: each block of encoder and decoder; the root has embeddings, positions, last norms and
//   head, which may be tied.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads of both attentions, the feed-forward's inner width and the vocabulary
//   are sharded; positions and norms are replicated.
distributed::ParallelPlan encoder_decoder_plan(const ParallelizeOptions& options) {
  using distributed::ColwiseParallel;
  using distributed::HeadParallel;
  using distributed::RowwiseParallel;
  return {{"*_embedding", RowwiseParallel{}},
          {"*coder.*.attention", HeadParallel{}},
          {"decoder.*.cross_attention", HeadParallel{}},
          {"*coder.*.feed_forward.up", ColwiseParallel{}},
          {"*coder.*.feed_forward.down", RowwiseParallel{}},
          {"head", ColwiseParallel{.output_layout = logits_layout(options)}}};
}

}  // namespace

void parallelize(EncoderDecoder& model, const ParallelizeOptions& options) {
  cut_layers(model, options, encoder_decoder_plan(options));
  for (PreNormBlock& block : model.encoder_blocks()) shard_block(block, "feed_forward", options);
  for (DecoderBlock& block : model.decoder_blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

namespace {

// How the small Transformer is sharded over ranks.
//
// - Groups: each block; the root has embeddings, last norm and head, which may be tied.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads and the feed-forward's inner width are sharded; embeddings, norms and
//   head are replicated.
distributed::ParallelPlan transformer_plan() {
  using distributed::ColwiseParallel;
  using distributed::RowwiseParallel;
  return {{"layers.*.attention.wq", ColwiseParallel{}},
          {"layers.*.attention.wk", ColwiseParallel{}},
          {"layers.*.attention.wv", ColwiseParallel{}},
          {"layers.*.attention.wo", RowwiseParallel{}},
          {"layers.*.feed_forward.w1", ColwiseParallel{}},
          {"layers.*.feed_forward.w2", RowwiseParallel{}}};
}

}  // namespace

void parallelize(Transformer& model, const ParallelizeOptions& options) {
  cut_layers(model, options, transformer_plan());
  for (TransformerBlock& block : model.blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

namespace {

// How the mixture of experts is sharded over ranks.
//
// - Groups: each block; the root has embedding, last norm and head. Tokens are counted over all
//   ranks that share the batch, for capacity and balance.
// - Experts: on every rank, in their block's group. With an expert mesh, each rank of its last axis
//   has a part of them, which is a group of its own over the first axis. Tokens are then sent
//   between ranks, and backward yields gradients that are already summed over the last axis; the
//   group sums over the rest.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads are sharded; everything else is replicated.
constexpr const char* kWhere = "models.parallelize";

distributed::ParallelPlan mixture_of_experts_plan() {
  return {{"blocks.*.attention", distributed::HeadParallel{}}};
}

std::vector<int> sorted_ranks(const distributed::DeviceMesh& mesh) {
  std::vector<int> ranks = mesh.ranks();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void check_expert_mesh(const ParallelizeOptions& options) {
  TESSERA_CHECK(
      options.expert_mesh.ndim() == 2 &&
          sorted_ranks(options.expert_mesh) == sorted_ranks(options.mesh),
      kWhere,
      "expert_mesh is {}; it needs two axes, of copies and of experts, over the ranks of mesh, {}",
      options.expert_mesh.str(), options.mesh.str());
}

void shard_experts(Experts& experts, const ParallelizeOptions& options) {
  ParallelizeOptions own = options;
  own.mesh = options.expert_mesh[options.expert_mesh.axes().front()];
  if (own.shard == ShardMode::kHybrid) own.shard = ShardMode::kFull;
  shard_module(experts, own);
  fsdp::of(experts).set_gradient_divide_factor(options.mesh.size());
}

}  // namespace

void parallelize(MixtureOfExperts& model, const ParallelizeOptions& options) {
  check_mesh(options);
  const bool split = options.expert_mesh.defined();
  if (split) check_expert_mesh(options);
  cut_layers(model, options, mixture_of_experts_plan());
  model.share_batch(
      distributed::make_mesh(options.mesh.ndim() == 1 ? options.mesh : options.mesh.flatten()));
  if (split) {
    const std::string& axis = options.expert_mesh.axes().back();
    model.split_experts(distributed::make_mesh(options.expert_mesh[axis]));
  }
  for (MixtureOfExpertsBlock& block : model.blocks()) {
    if (split) shard_experts(block.feed_forward().experts(), options);
    shard_block(block, "feed_forward", options);
  }
  shard_module(model, options);
}

}  // namespace tessera::models
