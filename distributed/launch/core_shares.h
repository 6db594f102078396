#pragma once

/// Which cores each rank process of a host computes on.

#include <vector>

namespace tessera::distributed {

/// A core as the system numbers it (a hardware thread), and where it lies.
struct CorePlace {
  int number = 0;
  int package = 0;        ///< the socket
  int first_sibling = 0;  ///< the lowest number among the hardware threads of its physical core

  friend bool operator==(const CorePlace&, const CorePlace&) = default;
};

/// Where this core lies. If the system does not tell it, on socket 0, a physical core by itself.
CorePlace place_of_core(int number);

/// The numbers of these cores, in an order in which neighbours are near each other: by socket, then
/// by physical core. The system's own numbers often come to a core's second hardware thread only
/// after the first ones of all other cores.
std::vector<int> in_order(std::vector<CorePlace> places);

/// The shares of `ranks` in these cores, whose order is that of in_order: each a contiguous part of
/// the list, all of it together, their sizes at most one apart. If there are
/// fewer cores than ranks, each rank has all of them, since ranks that are held to one core of few
/// cannot move to one that is idle. `ranks` at least 1.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int ranks);

}  // namespace tessera::distributed
