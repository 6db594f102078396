#pragma once

/// Data parallelism: every rank keeps whole parameters, and each group's gradients are all-reduced
/// (mean) as soon as its backward is done.
///
///     for (auto& [name, block] : model.children()) replicate(*block, {.mesh = world.mesh()});
///     replicate(model, {.mesh = world.mesh()});
///
/// The machinery, the settings and the rules of fully_shard, with a group that nothing splits:
/// value() is local() itself unless it is cast or offloaded, no gathers, one all-reduce a group,
/// and grad() is the memory that gradients were collected in. No values or buffers are made equal
/// at the start: see sync_module_states.

#include <vector>

#include "tessera/fsdp/fully_shard.h"

namespace tessera::fsdp {

/// Throws as fully_shard; InvalidArgument for a mesh of another number of axes than 1.
Handle replicate(nn::Module& module, const ReplicateOptions& options);
Handle replicate(const std::vector<nn::Module*>& modules, const ReplicateOptions& options);

}  // namespace tessera::fsdp
