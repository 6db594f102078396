#pragma once

/// Code that the files of parallelize share.

#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/nn/module.h"
#include "tessera/nn/recompute.h"

namespace tessera::models {

/// Throws InvalidArgument for a mesh that does not fit the mode.
void check_mesh(const ParallelizeOptions& options);

/// Makes `module` a group of its own, according to the options.
void shard_module(nn::Module& module, const ParallelizeOptions& options);

/// The same for a block of a Transformer. Also marks the part that the options want recomputed: the
/// block, or its child `feed_forward`; throws InvalidArgument if that child does not exist.
void shard_block(nn::Module& block, std::string_view feed_forward,
                 const ParallelizeOptions& options);

/// Applies a tensor-parallel plan if there is a tensor mesh. Checks the mesh first.
void cut_layers(nn::Module& model, const ParallelizeOptions& options,
                const distributed::ParallelPlan& plan);

}  // namespace tessera::models
