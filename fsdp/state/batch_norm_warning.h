#pragma once

/// Prints local_batch_norm_warning() (state.h) when a state is saved.

#include <string>

#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// Prints the warning to standard error if it is not empty, once in a process. The warning names the function
/// `where`. For rank 0 of a save with other ranks. Thread-safe.
void warn_of_local_batch_norms(nn::Module& module, const std::string& where);

}  // namespace tessera::fsdp
