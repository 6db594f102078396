#pragma once

/// The part that fully_shard and replicate share. Private to this folder.

#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// Makes one group of the modules' parameters that no earlier call owns, and attaches the state.
Handle attach(const std::vector<nn::Module*>& modules, const FullyShardOptions& options, Kind kind);

}  // namespace tessera::fsdp
