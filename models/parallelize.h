#pragma once

/// How the models of this folder are sharded: each block is a group of its own, and the root holds
/// the rest.

#include "tessera/fsdp/options.h"
#include "tessera/models/mlp_stack.h"

namespace tessera::models {

/// Shards the model in place; before or after nn::initialize. Every rank of the mesh calls it.
/// Throws what fsdp::fully_shard throws.
void parallelize(MlpStack& model, const fsdp::FullyShardOptions& options);

}  // namespace tessera::models
