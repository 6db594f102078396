#include "tessera/distributed/launch/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

namespace tessera::distributed {
namespace {

constexpr const char* kRank = "TESSERA_LAUNCH_RANK";
constexpr const char* kSize = "TESSERA_LAUNCH_SIZE";
constexpr const char* kRanksPerNode = "TESSERA_LAUNCH_RANKS_PER_NODE";
constexpr const char* kCall = "TESSERA_LAUNCH_CALL";
constexpr const char* kFolder = "TESSERA_LAUNCH_FOLDER";
constexpr const char* kEndpoint = "TESSERA_LAUNCH_ENDPOINT";
constexpr const char* kAddress = "TESSERA_LAUNCH_ADDRESS";
constexpr std::array kNames = {kRank, kSize, kRanksPerNode, kCall, kFolder, kEndpoint, kAddress};

std::optional<std::string> take(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string copy = value;
  unsetenv(name);
  return copy;
}

std::optional<RankEnvironment> read_environment() {
  std::map<std::string, std::string> values;
  for (const char* name : kNames) {
    if (const std::optional<std::string> value = take(name)) values[name] = *value;
  }
  if (values.size() < kNames.size()) return std::nullopt;
  const auto number = [&values](const char* name) { return std::atoi(values[name].c_str()); };
  return RankEnvironment{.rank = number(kRank),
                         .size = number(kSize),
                         .ranks_per_node = number(kRanksPerNode),
                         .call = number(kCall),
                         .folder = values[kFolder],
                         .endpoint = values[kEndpoint],
                         .address = values[kAddress]};
}

bool names_rank_variable(std::string_view entry) {
  return std::any_of(kNames.begin(), kNames.end(), [entry](std::string_view name) {
    return entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
  });
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
  const auto add = [&out](const char* name, const auto& value) {
    out.push_back(fmt::format("{}={}", name, value));
  };
  add(kRank, environment.rank);
  add(kSize, environment.size);
  add(kRanksPerNode, environment.ranks_per_node);
  add(kCall, environment.call);
  add(kFolder, environment.folder);
  add(kEndpoint, environment.endpoint);
  add(kAddress, environment.address);
  return out;
}

}  // namespace tessera::distributed
