#pragma once

/// What the values of options are checked with. Each refuses with a sentence that names the value
/// and what would do.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::tools {

/// What is wrong with a value, or nothing.
using OptionCheck = std::function<std::string(const std::string&)>;

/// A finite number that fits; `what` completes "X is not ...".
OptionCheck number_check(std::string what, bool (*fits)(double));
OptionCheck above_zero();
OptionCheck fraction();  ///< in [0, 1)
OptionCheck not_negative();

/// Decimal digits only, and no number that does not fit.
OptionCheck whole_number(std::uint64_t least, std::uint64_t most);
/// The same for each entry of "512,256"; an empty entry is refused.
OptionCheck whole_numbers(std::uint64_t least, std::uint64_t most);

/// The number that all of a text is, if it is one; C's way to write it, with exponents, inf and
/// nan.
std::optional<double> number_of(const std::string& text);

}  // namespace tessera::tools
