#include "tessera/fsdp/checkpoint/optimizer_names.h"

#include <string_view>

namespace tessera::checkpoint {
namespace {

constexpr std::string_view kGroups = "parameters.", kStates = "state.";

// "state.", "up.weight" and ".momentum"; nothing for an entry of no parameter.
struct Split {
  std::string before, parameter, after;
};
std::optional<Split> split(const std::string& entry) {
  if (entry.starts_with(kGroups))
    return Split{std::string(kGroups), entry.substr(kGroups.size()), ""};
  const std::size_t dot = entry.rfind('.');
  if (!entry.starts_with(kStates) || dot <= kStates.size()) return std::nullopt;
  return Split{std::string(kStates), entry.substr(kStates.size(), dot - kStates.size()),
               entry.substr(dot)};
}

}  // namespace

OptimizerNames::OptimizerNames(const nn::optim::Optimizer& optimizer, nn::Module* model)
    : optimizer_(optimizer) {
  std::map<const void*, std::string> names;
  if (model != nullptr) {
    for (const nn::NamedParameter& each : model->named_parameters())
      names.emplace(each.parameter.id(), each.name);
  }
  for (const nn::Parameter& parameter : optimizer.parameters()) {
    const auto found = names.find(parameter.id());
    parameters_.emplace(found == names.end() ? parameter.name() : found->second, parameter);
  }
}

nn::StateDict OptimizerNames::state_dict() const {
  std::map<std::string, std::string> in_model;  // by full name
  for (const auto& [name, parameter] : parameters_) in_model.emplace(parameter.name(), name);
  const nn::StateDict own = optimizer_.state_dict();
  nn::StateDict out;
  for (const auto& [entry, value] : own) {
    const auto parts = split(entry);
    const std::string name =
        parts ? parts->before + in_model.at(parts->parameter) + parts->after : entry;
    out.set(name, value);
    if (const nn::ShardSpec* spec = own.part_of(entry)) out.mark_part(name, *spec);
  }
  return out;
}

bool OptimizerNames::is_of_parameter(const std::string& entry) { return split(entry).has_value(); }

const nn::Parameter* OptimizerNames::parameter_of(const std::string& entry) const {
  const auto parts = split(entry);
  const auto found = parts ? parameters_.find(parts->parameter) : parameters_.end();
  return found == parameters_.end() ? nullptr : &found->second;
}

std::string OptimizerNames::own_name(const std::string& entry) const {
  const auto parts = split(entry);
  return parts ? parts->before + parameters_.at(parts->parameter).name() + parts->after : entry;
}

}  // namespace tessera::checkpoint
