#pragma once

/// Fully sharded data parallelism: every rank keeps 1/W of each parameter, of its gradient and of
/// its optimizer state, and the whole parameter exists only while it is computed with.
///
///     for (auto& [name, block] : model.children()) {
///       fully_shard(*block, {.mesh = world.mesh()});        // inner groups first
///     }
///     fully_shard(model, {.mesh = world.mesh()});           // the rest
///     nn::initialize(model, {.seed = 1});                   // shards only
///
/// Each call makes ONE group of the parameters of the module's subtree that no earlier call has
/// claimed; the group is gathered before the module's forward and backward, released after them,
/// and its gradients are reduce-scattered (mean over the ranks) as soon as its backward is done.
/// All ranks make the same calls and run the same modules in the same order. See fsdp/README.md for
/// streams, events and memory.
///
/// fully_shard and replicate (replicate.h) nest both ways; neither enters a module that has a state
/// already. Everything that can be set later is in handle.h.

#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// Shards `module` in place. Works before or after initialize(); values already there are cut down
/// without communication, every rank trusting that all hold the same (see sync_module_states). A
/// module without parameters of its own to shard gets a state and no group.
///
/// Throws InvalidArgument, naming module and parameter, for: a missing mesh, or one of another
/// number of axes than 1 or 2; a container that has no forward; a parameter of 0 dims; trainable
/// parameters of different dtypes in one group; a shard dim out of range, or d > 0 not divisible by
/// the ranks; ReshardAfterForward of a number that does not divide the ranks; a tensor-parallel
/// parameter on a mesh that has no root in common with this one; options that can never act.
/// StateError for: a second call on the module (also replicate); a parameter that another group
/// owns (tied across groups, or the outer module wrapped before the inner one), naming both.
Handle fully_shard(nn::Module& module, const FullyShardOptions& options);
/// Several modules as one group: gathered when the first runs, released when all have run. One that
/// is inside another is only a part of it. A group of several cannot be the root. Throws also for
/// an empty list and a null module.
Handle fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options);

}  // namespace tessera::fsdp
