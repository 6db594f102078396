#include "tessera/tensor/cores.h"

#include <sched.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace tessera {

std::vector<int> usable_cores() {
  // A mask that is too small for the machine's cores is refused.
  constexpr int kFirst = 1024, kMost = 1 << 20;
  std::vector<int> cores;
  for (int size = kFirst; size <= kMost && cores.empty(); size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(static_cast<std::size_t>(size)), [](cpu_set_t* set) { CPU_FREE(set); });
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    if (mask == nullptr || sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    for (int core = 0; core < size; ++core)
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.get())) cores.push_back(core);
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

int default_threads() {
  const char* set = std::getenv("OMP_NUM_THREADS");
  const long threads = set == nullptr ? 0 : std::strtol(set, nullptr, 10);
  return threads > 0 && threads <= 1 << 15 ? static_cast<int>(threads)
                                           : static_cast<int>(usable_cores().size());
}

}  // namespace tessera
