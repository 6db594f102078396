#pragma once

/// Data parallelism: every rank keeps full parameters. Each group's gradients are all-reduced
/// (mean) as soon as its backward is done.
///
///     for (auto& [name, block] : model.children()) replicate(*block, {.mesh = world.mesh()});
///     replicate(model, {.mesh = world.mesh()});
///
/// It uses the code, settings and rules of fully_shard, with a group that has no shard axis:
/// value() is local() itself unless it is cast or offloaded, nothing is gathered, there is one
/// all-reduce per group, and grad() is the memory that gradients were collected in. Values and
/// buffers are not synchronised at the start: see sync_module_states.

#include <vector>

#include "tessera/fsdp/fully_shard.h"

namespace tessera::fsdp {

/// Throws as fully_shard does; InvalidArgument also for a mesh that has more than 1 axis.
Handle replicate(nn::Module& module, const ReplicateOptions& options);
Handle replicate(const std::vector<nn::Module*>& modules, const ReplicateOptions& options);

}  // namespace tessera::fsdp
