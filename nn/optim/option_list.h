#pragma once

/// The options of an optimizer as names and places, which is how they are saved and loaded.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::optim {

/// A member of an options struct.
struct OptionPlace {
  std::string name;
  std::variant<double*, std::int64_t*, bool*> place;
};
using OptionList = std::vector<OptionPlace>;

/// Each option under its name.
StateDict save_options(const OptionList& options);
/// Sets each option that `saved` has with the right kind of value. Returns what is wrong: missing
/// options, wrong kinds, and names that are no option.
std::vector<std::string> load_options(const OptionList& options, const StateDict& saved);

}  // namespace tessera::nn::optim
