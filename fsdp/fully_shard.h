#pragma once

/// Fully sharded data parallelism: each rank keeps 1/W of every parameter, of its gradient and of
/// its optimizer state. The full parameter exists only while a module computes with it.
///
///     for (auto& [name, block] : model.children()) {
///       fully_shard(*block, {.mesh = world.mesh()});        // inner groups first
///     }
///     fully_shard(model, {.mesh = world.mesh()});           // the rest
///     nn::initialize(model, {.seed = 1});                   // shards only
///
/// Each call makes ONE group of the parameters in the module's subtree that no earlier call
/// claimed. The group is all-gathered before the module's forward and backward and resharded after
/// them. Its gradients are reduce-scattered (mean over the ranks) as soon as its backward is done.
/// All ranks make the same calls and run the same modules in the same order. fsdp/README.md
/// describes streams, events and memory.
///
/// Buffers are neither sharded nor reduced. A BatchNorm has this rank's batches in its running
/// statistics: call nn::synchronize_batch_norms(model, mesh) so that all ranks have the
/// same ones (nn/layers/batch_norm.h).
///
/// fully_shard and replicate (replicate.h) can be nested in either order; neither enters a module
/// that already has a state. Settings that can be changed later are in handle.h.

#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// Shards `module` in place, before or after initialize(). If the module is already initialised,
/// each rank keeps its own rows, without communication: the caller guarantees that all ranks hold
/// equal values (see sync_module_states). A module without parameters of its own to shard gets a
/// state and no group.
///
/// Throws InvalidArgument, naming module and parameter, for: a missing mesh, or one that has not 1
/// or 2 axes; a container that has no forward; a parameter of 0 dims; trainable parameters of
/// different dtypes in one group; a shard dim out of range, or d > 0 not divisible by the ranks;
/// ReshardAfterForward(n) where n does not divide the ranks; a tensor-parallel parameter whose mesh
/// has no root mesh in common with this one; options that can have no effect. Throws StateError
/// for: a second call on the module (also of replicate); a parameter that another group owns (tied
/// across groups, or the outer module sharded before the inner one). That error names both groups.
Handle fully_shard(nn::Module& module, const FullyShardOptions& options);
/// Several modules as one group: gathered when the first one runs, resharded when all have run. A
/// module inside another one of the list is part of that one. A group of several modules cannot be
/// the root. Also throws for an empty list and for a null module.
Handle fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options);

}  // namespace tessera::fsdp
