#pragma once

/// Parameters that are stepped with the same options, and how a model's parameters are split into
/// such groups.
///
///     const auto [matrices, others] = optim::group_parameters(model, optim::min_dims(2));
///     optim::AdamW optimizer({{.parameters = matrices, .options = {.weight_decay = 0.1}},
///                             {.parameters = others, .options = {.weight_decay = 0}}});

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/nn/module.h"
#include "tessera/nn/parameter.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::optim {

// The options of an optimizer as names and places, which is how they are saved and loaded.

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

/// `Options` is the options struct of an optimizer: AdamWOptions.
template <class Options>
struct ParameterGroup {
  std::vector<Parameter> parameters;  ///< may be empty; one that is listed twice counts once
  Options options = {};
};

/// Whether a parameter belongs to a group; it sees the full name and the handle.
using ParameterPredicate = std::function<bool(const NamedParameter&)>;

/// Accepts parameters whose value has at least `dims` dims: 2 leaves out biases and scales.
ParameterPredicate min_dims(int dims);

namespace detail {
/// One list for each predicate, and one for the rest.
std::vector<std::vector<Parameter>> split_parameters(
    std::span<const NamedParameter> parameters, std::span<const ParameterPredicate> predicates);
}  // namespace detail

/// Each parameter goes to the first list whose predicate accepts it, else to the last one: one list
/// more than there are predicates, in the order of `parameters`.
template <class... Predicates>
std::array<std::vector<Parameter>, sizeof...(Predicates) + 1> group_parameters(
    const std::vector<NamedParameter>& parameters, Predicates... predicates) {
  const std::array<ParameterPredicate, sizeof...(Predicates)> list{
      ParameterPredicate(std::move(predicates))...};
  std::vector<std::vector<Parameter>> lists = detail::split_parameters(parameters, list);
  std::array<std::vector<Parameter>, sizeof...(Predicates) + 1> out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i].swap(lists[i]);
  return out;
}
template <class... Predicates>
auto group_parameters(const Module& module, Predicates... predicates) {
  return group_parameters(module.named_parameters(), std::move(predicates)...);
}

}  // namespace tessera::nn::optim
