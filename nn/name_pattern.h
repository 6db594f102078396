#pragma once

/// Choosing parameters and modules by name.

#include <string_view>

namespace tessera::nn {

/// True when `pattern` covers the whole qualified name: `*` stands for any run of characters of one
/// level (also none), `**` for any run of any levels, `?` for one character of a level, anything
/// else for itself.
///
///     "blocks.*.norm.*"   blocks.0.norm.weight, blocks.11.norm.bias
///     "**.bias"           every bias below the root's own; "**bias" also that
///     "layers.?.w*"       layers.3.w1, not layers.10.w1
bool matches(std::string_view name, std::string_view pattern);

}  // namespace tessera::nn
