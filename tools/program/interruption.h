#pragma once

/// A run that a signal ended before its last step, as the user reads it.

#include "tessera/distributed/launch/launch.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

/// "interrupted after step 7; ...": what is kept and what can be done with it. "interrupted before
/// the first step; ..." where there was none.
std::string interruption_text(const TrainOptions& options, const distributed::LaunchResult& result);

}  // namespace tessera::tools
