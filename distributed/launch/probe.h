#pragma once

/// What a program can try before it launches ranks.

#include <string>

namespace tessera::distributed {

/// Why a process of this host cannot connect to another one at 127.0.0.1, as rank processes do;
/// empty if it can. Takes at most a second.
std::string loopback_problem();

/// The host of an --rdzv-endpoint. Throws InvalidArgument for a text that is none.
std::string host_of_endpoint(const std::string& rdzv_endpoint);

/// Whether other hosts can reach a numeric address: it is no loopback address.
bool can_be_reached(const std::string& numeric_address);

}  // namespace tessera::distributed
