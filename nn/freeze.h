#pragma once

/// Which parameters are trained, chosen by name.
///
///     nn::freeze(model, "**");                 // all
///     nn::unfreeze(model, "head.*");           // but the head's
///
/// A new head on a loaded model gets its values from nn::initialize(model, {.only_missing = true}).
///
/// A frozen parameter is a constant of the graph from the next forward on: no gradient is computed
/// for it and optimizers pass it over. Before or after sharding.

#include <string>

#include "tessera/nn/module.h"

namespace tessera::nn {

/// Both return how many parameters the pattern covers (see matches() of name_pattern.h; a tied one
/// under its first name) and throw InvalidArgument when it covers none.
int freeze(Module& module, const std::string& pattern);
int unfreeze(Module& module, const std::string& pattern);

}  // namespace tessera::nn
