#pragma once

/// From the timed trace of a step to the figures of a profile.

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/tensor/profile/profile.h"
#include "tessera/tensor/trace.h"

namespace tessera {

struct ProfileKey {
  std::string thread;
  std::string module;
  std::string name;
  ProfileKind kind = ProfileKind::kOperation;
  ProfilePhase phase = ProfilePhase::kOther;

  auto operator<=>(const ProfileKey&) const = default;
};

/// What the steps of a profile have in common. Figures keep their addresses.
struct ProfileSums {
  std::int64_t steps = 0;
  std::int64_t wall_ns = 0;
  std::size_t dropped = 0;
  std::map<ProfileKey, ProfileFigures> figures;
  std::map<std::string, std::int64_t> module_calls;
  /// Names of queued streams by id; no two are equal.
  std::map<std::uint64_t, std::string> streams;
};

/// The times of a step on trace_clock(): start(), stop(), and the end of the last work.
struct StepTimes {
  std::int64_t begin = 0;
  std::int64_t stop = 0;
  std::int64_t end = 0;
};

/// Adds a step. All work of the trace has ended.
void read_step(const ExecutionTrace& trace, const StepTimes& times, ProfileSums& sums);

}  // namespace tessera
