#pragma once

/// What the values of options are checked with. Each refuses with a sentence that names the value
/// and what would do.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::tools {

/// A finite number that fits; `what` completes "X is not ...".
CLI::Validator number_check(std::string what, std::function<bool(double)> fits);
CLI::Validator above_zero();
CLI::Validator fraction();  ///< in [0, 1)
CLI::Validator not_negative();

/// Decimal digits only, and no number that does not fit.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);
/// The same for each entry of "512,256"; an empty entry is refused.
CLI::Validator whole_numbers(std::uint64_t least, std::uint64_t most);

/// What stands between the commas of a list, also where that is nothing.
std::vector<std::string> parts_of(const std::string& list);

}  // namespace tessera::tools
