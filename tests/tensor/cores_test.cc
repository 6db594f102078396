#include "tessera/tensor/cores.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST_CASE("cores: those of the thread's affinity mask") {
  const std::vector<int> all = usable_cores();
  REQUIRE(!all.empty());
  if (all.front() >= CPU_SETSIZE) return;
  std::vector<int> one;
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<std::size_t>(all.front()), &mask);
    if (sched_setaffinity(0, sizeof(mask), &mask) == 0) one = usable_cores();
  }).join();
  CHECK(one == std::vector<int>{all.front()});
  CHECK(usable_cores() == all);
}

TEST_CASE("cores: OMP_NUM_THREADS is the default number of threads") {
  const char* set = std::getenv("OMP_NUM_THREADS");
  const std::string previous = set == nullptr ? "" : set;
  const auto cores = static_cast<int>(usable_cores().size());
  const auto with = [](const char* value) {
    setenv("OMP_NUM_THREADS", value, 1);
    return default_threads();
  };
  CHECK(with("3") == 3);
  CHECK(with("7,2") == 7);
  for (const char* other : {"", "0", "-4", "many", "99999999999999999999"})
    CHECK(with(other) == cores);
  unsetenv("OMP_NUM_THREADS");
  CHECK(default_threads() == cores);
  if (set != nullptr) setenv("OMP_NUM_THREADS", previous.c_str(), 1);
}

}  // namespace
}  // namespace tessera
