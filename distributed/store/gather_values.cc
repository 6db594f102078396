#include "tessera/distributed/store/gather_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kShortestTick{100}, kLongestTick{1000};

std::string value_key(const GatherRequest& request, int rank) {
  return fmt::format("{}-{}", request.name, rank);
}

// The keys that have no value at the end.
std::vector<std::string> wait_with_checks(Store& store, const GatherRequest& request,
                                          const std::vector<std::string>& keys) {
  if (!request.check) return store.wait(keys, request.timeout);
  const auto start = Clock::now(), deadline = start + request.timeout;
  for (;;) {
    const auto now = Clock::now();
    const auto left = std::chrono::ceil<milliseconds>(deadline - now);
    // Longer and longer, as the store's own looks are further and further apart.
    const auto tick =
        std::clamp(std::chrono::ceil<milliseconds>((now - start) / 2), kShortestTick, kLongestTick);
    std::vector<std::string> absent = store.wait(keys, std::clamp(left, milliseconds(0), tick));
    if (absent.empty() || left <= tick) return absent;
    try {
      request.check();
    } catch (...) {
      // A rank that has the values may have gone, in order, before this one has looked again.
      if (store.wait(keys, milliseconds(0)).empty()) return {};
      throw;
    }
  }
}

// After a wait that has failed. If all have come since, only the list is missing.
std::vector<int> missing_ranks(Store& store, const GatherRequest& request,
                               const std::vector<std::string>& keys) {
  const std::vector<std::string> absent = store.wait(keys, milliseconds(0));
  std::vector<int> missing;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::find(absent.begin(), absent.end(), keys[i]) != absent.end())
      missing.push_back(request.ranks[i]);
  }
  if (missing.empty()) missing.push_back(request.ranks.front());
  return missing;
}

}  // namespace

GatheredValues gather_values(Store& store, const GatherRequest& request) {
  if (!store.set(value_key(request, request.rank), request.value)) return {.is_taken = true};
  std::vector<std::string> keys;
  for (int rank : request.ranks) keys.push_back(value_key(request, rank));
  const int first = request.ranks.front();
  const std::string list = fmt::format("{}-from-{}", request.name, first);
  const bool reads_all = request.rank == first;
  const std::vector<std::string> awaited = reads_all ? keys : std::vector{list};
  if (!wait_with_checks(store, request, awaited).empty())
    return {.missing = missing_ranks(store, request, keys)};
  if (reads_all) {
    std::string all;
    for (const std::string& key : keys) all += store.get(key).value_or("") + "\n";
    store.set(list, all);
  }
  GatheredValues gathered;
  std::istringstream lines(store.get(list).value_or(""));
  for (std::string line; std::getline(lines, line);) gathered.values.push_back(line);
  gathered.values.resize(request.ranks.size());
  return gathered;
}

}  // namespace tessera::distributed
