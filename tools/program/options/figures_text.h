#pragma once

/// Numbers as text for people.

#include <cstdint>
#include <string>

namespace tessera::tools {

std::string with_commas(std::int64_t value);  ///< "10,770,816"
std::string short_count(double value);        ///< "812", "10.8 k", "124.4 M", "6.7 B"
std::string short_bytes(double bytes);        ///< "812 B", "43.1 MB", "1.5 TB": powers of 1000
std::string short_time(double seconds);       ///< "0:07", "1:02:03", rounded up

}  // namespace tessera::tools
