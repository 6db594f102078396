#include "tessera/distributed/launch/core_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

namespace tessera::distributed {
namespace {

// The first number of a file of /sys about this core: of "2" or of a list as "2-3,18"; `missing`
// where there is none.
int topology(int core, const char* name, int missing) {
  std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", core, name));
  int number = missing;
  return in >> number && number >= 0 ? number : missing;
}

}  // namespace

CorePlace place_of_core(int number) {
  return {.number = number,
          .package = topology(number, "physical_package_id", 0),
          .first_sibling = topology(number, "thread_siblings_list", number)};
}

std::vector<int> in_order(std::vector<CorePlace> places) {
  std::sort(places.begin(), places.end(), [](const CorePlace& a, const CorePlace& b) {
    return std::tie(a.package, a.first_sibling, a.number) <
           std::tie(b.package, b.first_sibling, b.number);
  });
  std::vector<int> numbers;
  for (const CorePlace& place : places) numbers.push_back(place.number);
  return numbers;
}

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int ranks) {
  const auto count = static_cast<std::ptrdiff_t>(cores.size());
  if (count < ranks) return {static_cast<std::size_t>(ranks), cores};
  std::vector<std::vector<int>> shares;
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank)
    shares.emplace_back(cores.begin() + rank * count / ranks,
                        cores.begin() + (rank + 1) * count / ranks);
  return shares;
}

}  // namespace tessera::distributed
