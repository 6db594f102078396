#pragma once

/// Choosing parameters and modules by name.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::nn {

/// True when `pattern` covers the whole qualified name: `*` stands for any run of characters of one
/// level (also none), `**` for any run of any levels, `?` for one character of a level, anything
/// else for itself.
///
///     "blocks.*.norm.*"   blocks.0.norm.weight, blocks.11.norm.bias
///     "**.bias"           every bias below the root's own; "**bias" also that
///     "layers.?.w*"       layers.3.w1, not layers.10.w1
bool matches(std::string_view name, std::string_view pattern);

/// True if one of the patterns covers the name, and without patterns: the option `only` of loads.
bool matches_any(std::string_view name, const std::vector<std::string>& patterns);
/// For error messages: one text for each pattern that covers none of the names.
std::vector<std::string> unmatched_patterns(const std::vector<std::string>& patterns,
                                            const std::vector<std::string>& names);

}  // namespace tessera::nn
