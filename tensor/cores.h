#pragma once

/// The cores of this machine that the calling thread may use.

#include <vector>

namespace tessera {

/// Their numbers, from the thread's affinity mask, in increasing order; core 0 if the system does not tell.
std::vector<int> usable_cores();

/// The threads of a process whose cores are not divided among ranks: OMP_NUM_THREADS, if it begins with a positive
/// number of at most 32,768, as for other libraries; otherwise the number of the calling thread's usable cores.
int default_threads();

}  // namespace tessera
