#pragma once

/// The comparisons of a bitonic sort (K. Batcher, "Sorting networks and their applications", 1968).
/// A pure function, tested on the CPU.

#include "tessera/tensor/host_device.h"

namespace tessera::cuda {

/// The pairs of elements that step (block, distance) of a bitonic sort compares, by number: each
/// pair's first element (the second is `distance` further), and whether the first one becomes the
/// smaller one. `distance` is a power of 2; lines have `length` elements, a power of 2.
struct BitonicPair {
  int first;
  bool ascending;
};
TESSERA_HD BitonicPair bitonic_pair(int number, int length, int block, int distance) {
  const int first = (number & ~(distance - 1)) * 2 + (number & (distance - 1));
  return {first, ((first & (length - 1)) & block) == 0};
}

}  // namespace tessera::cuda
