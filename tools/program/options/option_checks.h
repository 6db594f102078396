#pragma once

/// Checks for option values. The error text names the value and the valid ones.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::tools {

/// Returns what is wrong with a value, or an empty text.
using OptionCheck = std::function<std::string(const std::string&)>;

/// A finite number that satisfies `fits`; `what` completes "X is not ...".
OptionCheck number_check(std::string what, bool (*fits)(double));
OptionCheck above_zero();
OptionCheck fraction();  ///< in [0, 1)
OptionCheck not_negative();

/// Decimal digits only, in the range.
OptionCheck whole_number(std::uint64_t least, std::uint64_t most);
/// The same for each entry of "512,256"; empty entries are errors.
OptionCheck whole_numbers(std::uint64_t least, std::uint64_t most);

/// The number, if the whole text is one, in C's notation with exponents, inf and nan.
std::optional<double> number_of(const std::string& text);

}  // namespace tessera::tools
