#pragma once

/// How each model is sharded over ranks: its parameter groups, their dtypes, what backward
/// recomputes, and which layers tensor parallelism shards. One file per model,
/// parallelize_<model>.cc; the models themselves know nothing of ranks.
///
///     Gpt model(options);                                    // constructed with precision.storage
///     parallelize(model, {.mesh = world.mesh(), .precision = precision_named("bf16")});
///     nn::initialize(model, {.seed = 1});
///
/// All ranks make the same call, before the optimizer's first step. Throws the errors of
/// fully_shard, replicate and distributed::parallelize; InvalidArgument also for a mesh that does
/// not fit the mode, and for a model whose dtype is not the precision's storage dtype.

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/models/nets/encoder_decoder.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/models/parallelize/precision.h"

namespace tessera::models {

/// What is sharded over the ranks of a mesh.
enum class ShardMode : std::uint8_t {
  kFull,       ///< parameters, gradients, optimizer state (ZeRO-3)
  kGrad,       ///< the same, but gathered parameters are kept until their backward (ZeRO-2)
  kReplicate,  ///< nothing: every rank has full parameters, gradients are averaged (DDP)
  kHybrid,     ///< kFull over the mesh's second axis, replicas over its first (HSDP)
};
/// full, grad, replicate, hybrid.
const std::vector<std::string>& shard_mode_names();
/// Throws InvalidArgument for an unknown name, listing the known ones.
ShardMode shard_mode_named(std::string_view name);

/// Activations that backward recomputes instead of keeping them.
enum class RecomputeMode : std::uint8_t {
  kNone,
  kFull,       ///< every block: only its input is kept
  kSelective,  ///< the feed-forward part of every block, which has the widest activations
};
/// none, full, selective.
const std::vector<std::string>& recompute_mode_names();
/// Throws InvalidArgument for an unknown name, listing the known ones.
RecomputeMode recompute_mode_named(std::string_view name);

struct ParallelizeOptions {
  /// Required. The ranks that share the batch: one axis, or two ("replicate", "shard") for kHybrid.
  distributed::DeviceMesh mesh;
  ShardMode shard = ShardMode::kFull;
  Precision precision = {};
  RecomputeMode recompute = RecomputeMode::kNone;
  /// The tensor-parallel ranks: one axis, with the same root mesh as `mesh`. Undefined: no tensor
  /// parallelism.
  distributed::DeviceMesh tensor_mesh = {};
  /// With a tensor_mesh, and for the models of shards_vocabulary: the logits stay in parts, so that
  /// the loss, nn::parallel_cross_entropy or token_loss(), needs neither a gather of them nor the
  /// memory. Otherwise each rank has all logits.
  bool loss_parallel = false;
  /// For MixtureOfExperts: the ranks of `mesh` along two axes. The last axis has parts of the
  /// experts, the first has replicas of these parts. Undefined: every rank has all experts.
  distributed::DeviceMesh expert_mesh = {};
};

void parallelize(MlpStack& model, const ParallelizeOptions& options);
void parallelize(Transformer& model, const ParallelizeOptions& options);
void parallelize(Gpt& model, const ParallelizeOptions& options);
void parallelize(Llama& model, const ParallelizeOptions& options);
void parallelize(EncoderDecoder& model, const ParallelizeOptions& options);
void parallelize(MixtureOfExperts& model, const ParallelizeOptions& options);

/// Whether tensor parallelism cuts the model's head; that of the others is whole on every rank.
template <class Model>
inline constexpr bool shards_vocabulary =
    std::is_same_v<Model, Gpt> || std::is_same_v<Model, Llama> ||
    std::is_same_v<Model, EncoderDecoder>;

/// language_model() of a model that was parallelized with these options.
template <IsLanguageModel Model>
LanguageModel language_model(Model& model, const ParallelizeOptions& options) {
  LanguageModel out = language_model(model);
  if (shards_vocabulary<Model> && options.loss_parallel && options.tensor_mesh.defined())
    out.vocabulary_mesh = distributed::make_mesh(options.tensor_mesh);
  return out;
}

}  // namespace tessera::models
