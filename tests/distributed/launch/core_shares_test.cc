// The division of cores among the ranks of a host, and the cores of rank processes.
#include "tessera/distributed/launch/core_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/tensor/cores.h"
#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Cores = std::vector<int>;
using Shares = std::vector<Cores>;

Cores joined(const Shares& shares) {
  Cores all;
  for (const Cores& share : shares) all.insert(all.end(), share.begin(), share.end());
  return all;
}

}  // namespace

TEST_CASE("cores are divided into shares next to each other", "[cores]") {
  CHECK(divide_cores({0, 1}, 2) == Shares{{0}, {1}});
  CHECK(divide_cores({0, 1, 2}, 2) == Shares{{0}, {1, 2}});
  CHECK(divide_cores({0, 1, 2, 3, 4, 5, 6}, 3) == Shares{{0, 1}, {2, 3}, {4, 5, 6}});
  CHECK(divide_cores({1, 3, 4, 9, 70}, 2) == Shares{{1, 3}, {4, 9, 70}});
  CHECK(divide_cores({5, 2, 8}, 3) == Shares{{5}, {2}, {8}});  // in their order
}

TEST_CASE("ranks that are more than the cores share all of them", "[cores]") {
  CHECK(divide_cores({0}, 2) == Shares{{0}, {0}});
  CHECK(divide_cores({0, 1}, 4) == Shares{{0, 1}, {0, 1}, {0, 1}, {0, 1}});
  CHECK(divide_cores({2, 7, 9}, 5) == Shares(5, {2, 7, 9}));
}

TEST_CASE("no core is idle or has two ranks, and shares differ by one core at most", "[cores]") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int count = ranks; count <= 17; ++count) {
      CAPTURE(ranks, count);
      Cores cores;
      for (int i = 0; i < count; ++i) cores.push_back(3 * i + (i > 4 ? 40 : 1));  // with holes
      const Shares shares = divide_cores(cores, ranks);
      CHECK(shares.size() == static_cast<std::size_t>(ranks));
      CHECK(joined(shares) == cores);
      const auto [least, most] =
          std::minmax_element(shares.begin(), shares.end(),
                              [](const Cores& a, const Cores& b) { return a.size() < b.size(); });
      CHECK(least->size() >= 1);
      CHECK(most->size() - least->size() <= 1);
    }
  }
}

TEST_CASE("the hardware threads of a core are neighbours, and so are the cores of a socket",
          "[cores]") {
  // Two sockets of two physical cores: the system numbers the second threads after all first ones.
  std::vector<CorePlace> places;
  for (int number : {0, 1, 2, 3, 4, 5, 6, 7})
    places.push_back({.number = number, .package = number % 4 / 2, .first_sibling = number % 4});
  CHECK(in_order(places) == Cores{0, 4, 1, 5, 2, 6, 3, 7});
  std::reverse(places.begin(), places.end());
  CHECK(divide_cores(in_order(places), 2) == Shares{{0, 4, 1, 5}, {2, 6, 3, 7}});
  CHECK(in_order({}).empty());
}

TEST_CASE("a core about which the system tells nothing is one by itself", "[cores]") {
  const CorePlace place = place_of_core(1'000'000);
  CHECK(place == CorePlace{.number = 1'000'000, .package = 0, .first_sibling = 1'000'000});
  for (const int core : usable_cores()) CHECK(place_of_core(core).first_sibling <= core);
}

namespace {

// What the ranks print of their cores, in rank order.
Shares cores_of_run(const std::string& arguments, int ranks, const std::string& through = {}) {
  Program program(fmt::format("cores --ranks {} {}", ranks, arguments), through);
  CHECK(program.exit_code() == 0);
  const std::string text = program.output();
  Shares shares;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string key = fmt::format("rank {} has cores ", rank);
    const std::size_t at = text.find(key);
    REQUIRE(at != std::string::npos);
    std::istringstream line(text.substr(at + key.size(), text.find('\n', at) - at - key.size()));
    Cores& share = shares.emplace_back();
    for (int core = 0; line >> core;) share.push_back(core);
    // As many threads as cores, where these are its own.
    const int sharers = static_cast<int>(usable_cores().size()) < ranks ? ranks : 1;
    if (through.empty() && arguments.empty())
      CHECK_THAT(text,
                 Contains(fmt::format("rank {} has {} threads\n", rank,
                                      threads_of_cores(static_cast<int>(share.size()), sharers))));
  }
  return shares;
}

}  // namespace

TEST_CASE("rank processes have cores of their own if there are enough", "[cores]") {
  const Cores all = usable_cores();
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    const Shares shares = cores_of_run("", ranks);
    if (static_cast<int>(all.size()) < ranks) {
      CHECK(shares == Shares(static_cast<std::size_t>(ranks), all));
      continue;
    }
    Cores found = joined(shares);
    std::sort(found.begin(), found.end());
    CHECK(found == all);
  }
}

TEST_CASE("ranks keep to the cores of their launcher", "[cores]") {
  const Cores all = usable_cores();
  const std::string one = fmt::format("taskset -c {}", all.back());
  CHECK(cores_of_run("", 2, one) == Shares(2, {all.back()}));
  CHECK(cores_of_run("--bind cores", 1, one) == Shares{{all.back()}});
}

TEST_CASE("with --bind none each rank process may use all cores", "[cores]") {
  CHECK(cores_of_run("--bind none", 2) == Shares(2, usable_cores()));
  CHECK(cores_of_run("--launch threads", 2) == Shares(2, usable_cores()));
}

TEST_CASE("a wrong binding is refused", "[cores]") {
  const auto [arguments, message] = GENERATE(table<std::string, std::string>({
      {"--bind sockets", "error: [launch] --bind takes auto, none or cores, got \"sockets\"\n"},
      {"--launch threads --bind cores",
       "error: [launch] threads are not bound to cores; launch processes\n"},
  }));
  Program program("cores " + arguments);
  CHECK(program.exit_code() == 2);
  CHECK_THAT(program.output(), Contains(message));
}

}  // namespace tessera::distributed
