#pragma once

/// How each model is spread over ranks: which modules are groups of parameters, in which dtypes
/// they compute, what is recomputed in backward, and which layers are cut by tensor parallelism.
/// One page for each model, parallelize_<model>.cc; the models themselves know nothing of ranks.
///
///     Gpt model(options);                                    // constructed with precision.storage
///     parallelize(model, {.mesh = world.mesh(), .precision = precision_named("bf16")});
///     nn::initialize(model, {.seed = 1});
///
/// Called by all ranks alike, before optimizers take their first step. Throws as fully_shard,
/// replicate and distributed::parallelize do, and InvalidArgument for a mesh that does not fit the
/// mode and for a model of another dtype than the precision stores.

#include <string>
#include <string_view>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/models/nets/encoder_decoder.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/models/parallelize/precision.h"

namespace tessera::models {

/// What the ranks of a mesh share.
enum class ShardMode : std::uint8_t {
  kFull,       ///< parameters, gradients, optimizer state (ZeRO-3)
  kGrad,       ///< the same, but a parameter once gathered is kept until its backward (ZeRO-2)
  kReplicate,  ///< nothing: every rank has all, gradients are averaged (DDP)
  kHybrid,     ///< full inside the mesh's second axis, replicas over its first (HSDP)
};
/// full, grad, replicate, hybrid.
const std::vector<std::string>& shard_mode_names();
/// Throws InvalidArgument for another name, naming those there are.
ShardMode shard_mode_named(std::string_view name);

/// What is computed again in backward instead of kept.
enum class RecomputeMode : std::uint8_t {
  kNone,
  kFull,       ///< every block: its input alone is kept
  kSelective,  ///< the feed-forward part of every block, whose activations are the widest
};
/// none, full, selective.
const std::vector<std::string>& recompute_mode_names();
/// Throws InvalidArgument for another name, naming those there are.
RecomputeMode recompute_mode_named(std::string_view name);

struct ParallelizeOptions {
  /// Required. Ranks that share the batch: one axis, or two ("replicate", "shard") for kHybrid.
  distributed::DeviceMesh mesh;
  ShardMode shard = ShardMode::kFull;
  Precision precision = {};
  RecomputeMode recompute = RecomputeMode::kNone;
  /// Ranks that share every layer: one axis, of one root with `mesh`. Undefined: layers are whole.
  distributed::DeviceMesh tensor_mesh = {};
  /// For MixtureOfExperts: the ranks of `mesh` along two axes, of which the last has the experts in
  /// parts and the first copies of these parts. Undefined: every rank computes with all experts.
  distributed::DeviceMesh expert_mesh = {};
};

void parallelize(MlpStack& model, const ParallelizeOptions& options);
void parallelize(Transformer& model, const ParallelizeOptions& options);
void parallelize(Gpt& model, const ParallelizeOptions& options);
void parallelize(Llama& model, const ParallelizeOptions& options);
void parallelize(EncoderDecoder& model, const ParallelizeOptions& options);
void parallelize(MixtureOfExperts& model, const ParallelizeOptions& options);

}  // namespace tessera::models
