#pragma once

/// The message for a run that a signal ended before its last step.

#include "tessera/distributed/launch/launch.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

/// "interrupted after step 7; ..." with the files that are kept and their use, or "interrupted
/// before the first step; ...".
std::string interruption_text(const TrainOptions& options, const distributed::LaunchResult& result);

}  // namespace tessera::tools
