#include "tessera/distributed/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string_view>

namespace tessera::distributed {
namespace {

constexpr const char* kRank = "TESSERA_LAUNCH_RANK";
constexpr const char* kSize = "TESSERA_LAUNCH_SIZE";
constexpr const char* kCall = "TESSERA_LAUNCH_CALL";
constexpr const char* kFolder = "TESSERA_LAUNCH_FOLDER";

std::optional<std::string> take(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string copy = value;
  unsetenv(name);
  return copy;
}

std::optional<RankEnvironment> read_environment() {
  const auto rank = take(kRank), size = take(kSize), call = take(kCall), folder = take(kFolder);
  if (!rank || !size || !call || !folder) return std::nullopt;
  return RankEnvironment{.rank = std::atoi(rank->c_str()),
                         .size = std::atoi(size->c_str()),
                         .call = std::atoi(call->c_str()),
                         .folder = *folder};
}

bool names_rank_variable(std::string_view entry) {
  for (std::string_view name : {kRank, kSize, kCall, kFolder}) {
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) return true;
  }
  return false;
}

}  // namespace

const RankEnvironment* rank_environment() {
  static const std::optional<RankEnvironment> environment = read_environment();
  return environment ? &*environment : nullptr;
}

std::vector<std::string> environment_with(const RankEnvironment& environment) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!names_rank_variable(*entry)) out.emplace_back(*entry);
  }
  out.push_back(fmt::format("{}={}", kRank, environment.rank));
  out.push_back(fmt::format("{}={}", kSize, environment.size));
  out.push_back(fmt::format("{}={}", kCall, environment.call));
  out.push_back(fmt::format("{}={}", kFolder, environment.folder));
  return out;
}

}  // namespace tessera::distributed
