#pragma once

/// Lists of words in one text.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models::runs {

/// The parts between the commas; parts may be empty.
std::vector<std::string> parts_of(const std::string& list);

/// The words with a text between them. (fmt::join formats each word as a value of any type, which
/// takes the compiler most of a second.)
std::string joined(std::span<const std::string> words, std::string_view between);

}  // namespace tessera::models::runs
