#pragma once

/// A profile as text.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/tensor/profile/profile.h"

namespace tessera {

struct ProfileTableArgs {
  std::int64_t steps = 0;
  std::int64_t wall_ns = 0;
  std::size_t dropped = 0;
  std::vector<std::string> threads;
  std::vector<ProfileRow> operations;
  std::vector<ProfileModule> modules;
};

std::string profile_table(const ProfileTableArgs& profile, const ProfileTableOptions& options);

/// Sorts the largest first: by self time; work without times by FLOPs, then by bytes.
std::tuple<std::int64_t, std::int64_t, std::int64_t> largest_first(const ProfileFigures& figures);

/// The modules that the work of `path` is inside of, with itself: "a.b" is in kRootModule, "a" and
/// "a.b". kNoModule is only in itself.
std::vector<std::string> modules_around(const std::string& path);

}  // namespace tessera
