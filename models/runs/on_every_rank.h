#pragma once

/// Work that each rank does for itself, such as reading files, and that may fail on one of them.

#include <exception>
#include <optional>

#include "tessera/distributed/process_group.h"

namespace tessera::models::runs {

/// Throws on all ranks if any rank passes an error: the error of the first such rank, with its text
/// and its class, if that is one of tensor/error.h or OptionError; else an Error. Collective.
void throw_first_error(distributed::ProcessGroup& group, const std::exception_ptr& mine);

/// Calls `work` on each rank and returns its result. If it throws on any rank, all throw as
/// throw_first_error(), so that none waits for another. Collective; `work` itself is not.
template <class Work>
auto on_every_rank(distributed::ProcessGroup& group, const Work& work) {
  std::optional<decltype(work())> result;
  std::exception_ptr error;
  try {
    result.emplace(work());
  } catch (...) {
    error = std::current_exception();
  }
  throw_first_error(group, error);
  return *std::move(result);
}

}  // namespace tessera::models::runs
