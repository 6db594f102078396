#pragma once

/// Tensor parallelism: the ranks of one mesh axis hold parts of a model's weights and compute parts
/// of each layer.
///
///     parallelize(model, mesh["tp"], {{"layers.*.up", ColwiseParallel{}},
///                                     {"layers.*.down", RowwiseParallel{}}});
///     nn::initialize(model, {.seed = 1});      // before or after; the numbers are the same
///
/// A plan names modules by pattern (nn/name_pattern.h) and gives each a style. A style shards the
/// module's parameters permanently (nn::Parameter::cut), so that each rank allocates, computes
/// with, updates and saves its part only, and adds collectives of nn/mesh/mesh_ops.h around its
/// forward. The model's code does not change: layers take their widths from the parts that they
/// have.
///
/// Every Variable is this rank's own tensor. Its *layout* relates it to the full tensor:
/// Replicate{}, the same on all ranks, or Shard{dim}, equal parts of that dim. The parts of
/// *features* (the last dim of a column-wise result) follow the rule of torch.chunk and may be
/// uneven or empty; a row-wise layer takes them unpadded. A replicated Variable has a replicated
/// gradient, and the loss is the same on every rank and counts once. All ranks of the axis get the
/// same input, or parts of one, and use the same random::StepScope; dropout then drops the same
/// elements as on one rank.
///
/// Collectives follow from the plan and from which Variables need gradients, never from which ranks
/// have elements. Collective: all ranks of the axis call forward and backward.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/module.h"

namespace tessera::distributed {

/// Common options of styles:
///
/// - input_layout: the layout of the module's input. It is converted to the layout that the style
///   needs.
/// - output_layout: the layout of the result.
/// - use_local_output: if false, the layout of the result is remembered. A style that gets this very
///   Variable starts from the remembered layout, whatever its own input_layout says. (Operations in
///   between make new Variables, whose layout is unknown. PyTorch returns a DTensor here.)

/// nn::Linear: this rank computes some of the outputs; weight and bias are cut along dim 0. The
/// input is needed whole: Replicate costs an all-reduce in backward, Shard an all-gather and a
/// reduce-scatter in backward.
/// nn::Embedding: this rank has some features of every entry, dim 1 of the weight. The index is the
/// same on all ranks.
struct ColwiseParallel {
  Placement input_layout = Replicate{};
  Placement output_layout = Shard{-1};  ///< another: an all-gather
  bool use_local_output = true;
};

/// nn::Linear: this rank has some inputs, dim 1 of the weight, and its product is a term of the
/// result. Terms are added up by an all-reduce (Replicate) or a reduce-scatter (Shard). The bias is
/// whole on every rank and added once, after that.
/// nn::Embedding: this rank has some entries, dim 0 of the weight; the others read as zeros, and
/// the same addition. The index is the same on all ranks.
struct RowwiseParallel {
  /// Of a Linear, Shard{-1} unless given; parts of features in the chunks of its `in`.
  std::optional<Placement> input_layout = {};
  Placement output_layout = Replicate{};
  bool use_local_output = true;
};

/// nn::MultiheadAttention: this rank has some heads. Its projections in are cut by heads,
/// "out_proj" is row-wise. The key-value heads must be a multiple of the ranks. Attention weights
/// cannot be asked for: a rank knows those of its heads only; a mask with a dim of heads has those.
/// The packed projections are three parts of one parameter, whose spec says no cuts: full_copy()
/// does not put them together.
struct HeadParallel {
  Placement input_layout = Replicate{};  ///< of query, key and value
  Placement output_layout = Replicate{};
  bool use_local_output = true;
};

/// nn::LayerNorm, nn::RMSNorm, nn::Dropout: input and result are Shard{sequence_dim}, and so are a
/// norm's residual and sum. Parameters are whole on every rank, and their gradients, each of its
/// part of the sequence, are added up in backward: an all-reduce for each. Dropout drops what the
/// whole sequence would.
struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = true;
};

struct LayoutChange {
  Placement from = Replicate{};
  Placement to = Replicate{};
};

/// Any module that is called: brings its arguments to other layouts. One entry for each Variable
/// among the arguments, in their order; nullopt leaves it alone. Where an argument becomes
/// Replicate, the column-wise layers inside that are given this very Variable share one collective
/// each way: with Shard{1} -> Replicate, self attention gathers its input once in forward and
/// reduce-scatters one gradient in backward, whatever the number of projections.
struct PrepareModuleInput {
  std::vector<std::optional<LayoutChange>> inputs;
};
/// The same with the Variables of its result.
struct PrepareModuleOutput {
  std::vector<std::optional<LayoutChange>> outputs;
  bool use_local_output = true;
};

using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel, HeadParallel, SequenceParallel,
                                   PrepareModuleInput, PrepareModuleOutput>;

struct ParallelRule {
  std::string modules;  ///< a pattern of names below the module; "" is the module itself
  ParallelStyle style;
};
using ParallelPlan = std::vector<ParallelRule>;

/// Applies a plan over a mesh of one axis, before fully_shard and before optimizers are made. A
/// materialised model is cut down, without communication; one that is not is later initialised in
/// parts, to the same numbers. Needs no other rank.
///
/// Tied parameters are cut once, where the styles of all their modules agree: an embedding
/// row-wise and an output layer column-wise. A module may have one style that computes, and beside
/// it one PrepareModuleInput and one PrepareModuleOutput.
///
/// Throws InvalidArgument, with the model as it was, for a mesh with other than one axis, a pattern
/// that matches nothing, a style on a module that it is not for, a style given twice, layouts that
/// a style cannot have, and tied parameters whose modules do not agree; StateError for parameters
/// that are sharded already.
void parallelize(nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan);

}  // namespace tessera::distributed
