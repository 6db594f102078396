#pragma once

/// The lists of hosts and of tasks that Slurm writes into environment variables.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::distributed {

/// The hosts of a list, in its order: "n[01-03,7]-ib,b" is n01-ib, n02-ib, n03-ib, n7-ib, b. Numbers
/// keep their leading zeros, and one name may have several brackets, of which the last counts
/// fastest. `variable` is where the list comes from, for errors: throws InvalidArgument for a list
/// that is empty or not well formed, and for more than 65536 hosts.
std::vector<std::string> expand_hosts(std::string_view variable, std::string_view list);

/// The number of tasks on each host: "2(x3),1" is 2, 2, 2, 1. Throws as expand_hosts does.
std::vector<int> expand_counts(std::string_view variable, std::string_view list);

}  // namespace tessera::distributed
