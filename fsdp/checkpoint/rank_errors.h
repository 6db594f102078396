#pragma once

/// Errors of one rank that all ranks throw: a rank that failed alone would leave the others waiting in the
/// next collective.

#include <functional>
#include <string>

#include "tessera/distributed/process_group.h"

namespace tessera::checkpoint {

/// Runs something that does not communicate. Returns its error as a text for throw_first; empty if there
/// is none.
std::string error_of(const std::function<void()>& work);

/// Throws the error of the first rank that has one, on all ranks, with its text: InvalidArgument,
/// CheckpointError, or StateError for another type. Collective; a null group is this rank alone.
void throw_first(distributed::ProcessGroup* group, const std::string& error);

/// Both.
void on_all_ranks(distributed::ProcessGroup* group, const std::function<void()>& work);

}  // namespace tessera::checkpoint
