#pragma once

/// How a rank failed, and which of several failures is the one to tell.

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace tessera::distributed {

struct RankFailure {
  int rank = -1;
  std::int64_t time_ns = 0;    ///< monotonic clock of the host, comparable between its processes
  bool echo = false;           ///< the consequence of a failure elsewhere
  std::string text{};          ///< without the rank
  std::exception_ptr error{};  ///< null when it happened in another process
};

std::int64_t monotonic_ns();

/// Describes an exception now; nested exceptions are appended to the text.
RankFailure describe_failure(int rank, const std::exception_ptr& error);

/// The earliest that is no echo, else the earliest; null for none.
const RankFailure* first_failure(const std::vector<RankFailure>& failures);

}  // namespace tessera::distributed
