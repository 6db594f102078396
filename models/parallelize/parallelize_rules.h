#pragma once

/// What the pages of parallelize have in common.

#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/nn/module.h"
#include "tessera/nn/recompute.h"

namespace tessera::models {

/// Throws InvalidArgument for a mesh that does not fit the way to shard.
void check_mesh(const ParallelizeOptions& options);

/// Makes `module` a group of its own, as the options say.
void shard_module(nn::Module& module, const ParallelizeOptions& options);

/// The same for a block of a Transformer, and marks what the options want recomputed: the block, or
/// its child of the name `feed_forward`, without which it throws InvalidArgument.
void shard_block(nn::Module& block, std::string_view feed_forward,
                 const ParallelizeOptions& options);

/// Cuts layers by a plan, if there are ranks to share them. Checks the mesh before.
void cut_layers(nn::Module& model, const ParallelizeOptions& options,
                const distributed::ParallelPlan& plan);

}  // namespace tessera::models
