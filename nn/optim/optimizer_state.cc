// Optimizer::state_dict and load_state_dict.
#include <algorithm>

#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/optim/saved_names.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kSave = "nn.optim.state_dict";
constexpr const char* kLoad = "nn.optim.load_state_dict";
constexpr const char* kParameters = "parameters.";
constexpr const char* kStates = "state.";
constexpr const char* kStep = "step";
constexpr const char* kInitialLr = "initial_lr";

std::string group_prefix(int group) { return fmt::format("groups.{}.", group); }

int saved_groups(const StateDict& saved) {
  int count = 0;
  while (!saved.part(group_prefix(count)).empty()) ++count;
  return count;
}

bool is_number(const StateValue& value) {
  return std::holds_alternative<double>(value) || std::holds_alternative<std::int64_t>(value);
}

// The options of a group alone.
StateDict saved_options(const StateDict& saved, int group) {
  StateDict out = saved.part(group_prefix(group));
  out.erase(kInitialLr);
  return out;
}

// What is wrong with a saved state tensor; empty when nothing is.
std::string tensor_problem(const StateValue* value, const Tensor& local, const Shape& shape,
                           bool needs_elements) {
  if (value == nullptr) return "is missing";
  const Tensor* tensor = std::get_if<Tensor>(value);
  if (tensor == nullptr) return fmt::format("is a {}, not a tensor", state_value_kind(*value));
  if (needs_elements && tensor->device().is_null() && !local.device().is_null()) {
    return "is on the null device: it has no elements";
  }
  const DType dtype = compute_dtype(local.dtype());
  if (tensor->shape() == shape && tensor->dtype() == dtype) return {};
  return fmt::format("is {} {}, not {} {}", dtype_name(tensor->dtype()), tensor->shape().str(),
                     dtype_name(dtype), shape.str());
}

std::string step_problem(const StateValue* value) {
  if (value == nullptr) return "is missing";
  const auto* step = std::get_if<std::int64_t>(value);
  if (step == nullptr) return fmt::format("is a {}, not an integer", state_value_kind(*value));
  return *step >= 1 ? std::string() : fmt::format("is {}; it is at least 1", *step);
}

}  // namespace

// The saved state of one parameter.
struct Optimizer::LoadedState {
  Parameter parameter;
  StateDict values;
};

StateDict Optimizer::state_dict() const {
  parameters_by_name(kSave, parameters_);  // throws
  StateDict out;
  out.set("type", type_name());
  for (int group = 0; group < group_count(); ++group) {
    out.add(group_prefix(group), group_options(group));
    out.set(group_prefix(group) + kInitialLr, initial_lr(group));
  }
  for (const Parameter& parameter : parameters_) {
    out.set(kParameters + parameter.name(), std::int64_t{group_of(parameter)});
  }
  for (const Parameter& parameter : parameters_) {
    if (steps(parameter) == 0) continue;
    const std::string prefix = kStates + parameter.name() + ".";
    out.set(prefix + kStep, steps(parameter));
    const auto states = states_.find(parameter.id());
    if (states == states_.end()) continue;
    for (const auto& [name, tensor] : states->second) {
      out.set(prefix + name, tensor);
      if (!parameter.spec().is_whole() && tensor.shape() == parameter.local().shape())
        out.mark_part(prefix + name, parameter.spec());
    }
  }
  return out;
}

Optimizer::Problems Optimizer::check_saved_groups(const StateDict& saved) const {
  Problems problems;
  const int count = saved_groups(saved);
  if (count != group_count()) {
    problems.push_back(fmt::format("it has {} groups, not {}", count, group_count()));
  }
  for (int group = 0; group < std::min(count, group_count()); ++group) {
    const std::string prefix = group_prefix(group);
    const StateValue* initial_lr = saved.find(prefix + kInitialLr);
    if (initial_lr == nullptr || !is_number(*initial_lr)) {
      problems.push_back(prefix + kInitialLr + " is not a number");
    }
    for (const std::string& problem : group_options_problems(group, saved_options(saved, group))) {
      problems.push_back(prefix + problem);
    }
  }
  for (const auto& [name, value] : saved) {
    bool known = name == "type" || name.starts_with(kParameters) || name.starts_with(kStates);
    for (int group = 0; !known && group < count; ++group) {
      known = name.starts_with(group_prefix(group));
    }
    if (!known) problems.push_back(fmt::format("\"{}\" is unknown", name));
  }
  return problems;
}

void Optimizer::check_saved_members(const StateDict& saved, Problems& problems) const {
  const auto named = parameters_by_name(kLoad, parameters_);
  const StateDict members = saved.part(kParameters);
  for (const Parameter& parameter : parameters_) {
    const std::string& name = parameter.name();
    const StateValue* value = members.find(name);
    const auto* group = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
    if (group == nullptr) {
      problems.push_back(fmt::format("the parameter \"{}\" is not in it", name));
    } else if (*group != group_of(parameter)) {
      problems.push_back(fmt::format("the parameter \"{}\" is in its group {}, and here in {}",
                                     name, *group, group_of(parameter)));
    }
  }
  for (const auto& [name, value] : members) {
    if (named.count(name) == 0) {
      problems.push_back(fmt::format("its parameter \"{}\" is not here", name));
    }
  }
}

std::vector<Optimizer::LoadedState> Optimizer::read_states(const StateDict& saved,
                                                           bool needs_elements,
                                                           Problems& problems) const {
  const auto named = parameters_by_name(kLoad, parameters_);
  std::map<std::string, StateDict> by_name;
  for (const auto& [path, value] : saved.part(kStates)) {
    const std::size_t dot = path.rfind('.');
    const std::string name = path.substr(0, dot == std::string::npos ? 0 : dot);
    if (named.count(name) == 0) {
      problems.push_back(fmt::format("state.{} belongs to no parameter here", path));
    } else {
      by_name[name].set(path.substr(dot + 1), value);
    }
  }
  std::vector<LoadedState> out;
  for (auto& [name, values] : by_name) {
    out.push_back({.parameter = named.at(name), .values = std::move(values)});
    const int group = group_of(out.back().parameter);
    check_saved_state(out.back(), group_state_names(group, saved_options(saved, group)),
                      needs_elements, problems);
  }
  return out;
}

void Optimizer::check_saved_state(const LoadedState& loaded, const std::vector<std::string>& names,
                                  bool needs_elements, Problems& problems) const {
  const std::string prefix = kStates + loaded.parameter.name() + ".";
  const auto note = [&](const std::string& name, const std::string& problem) {
    if (!problem.empty()) problems.push_back(prefix + name + " " + problem);
  };
  if (!loaded.parameter.is_materialized()) {
    problems.push_back(fmt::format("\"{}\" has no elements yet: call nn::initialize(model)",
                                   loaded.parameter.name()));
    return;
  }
  note(kStep, step_problem(loaded.values.find(kStep)));
  const Tensor& local = loaded.parameter.local().tensor();
  std::vector<std::string> own;
  for (const std::string& name : names) {
    const std::optional<Shape> shape = state_shape(loaded.parameter, name);
    if (!shape) continue;
    own.push_back(name);
    note(name, tensor_problem(loaded.values.find(name), local, *shape, needs_elements));
  }
  for (const auto& [name, value] : loaded.values) {
    const bool known = name == kStep || std::find(own.begin(), own.end(), name) != own.end();
    if (!known) note(name, "is no state under the saved options");
  }
}

namespace {

// What a dict without the type of an optimizer has instead.
std::string found_instead(const StateDict& saved) {
  if (saved.empty()) return "it is empty";
  std::string prefix;  // of a whole run's state, from which a part is taken
  for (const auto& [name, value] : saved) {
    const std::size_t at = name.rfind(".type");
    if (at != std::string::npos && at + 5 == name.size()) prefix = name.substr(0, at + 1);
  }
  const std::string first = fmt::format("its first entry is \"{}\"", saved.begin()->first);
  return prefix.empty() ? first : fmt::format("{}; take saved.part(\"{}\")", first, prefix);
}

}  // namespace

void Optimizer::load_state_dict(const StateDict& saved) { load(saved, /*take=*/false); }
void Optimizer::take_state_dict(const StateDict& saved) { load(saved, /*take=*/true); }

std::vector<Optimizer::LoadedState> Optimizer::checked_states(const StateDict& saved,
                                                              bool needs_elements) const {
  parameters_by_name(kLoad, parameters_);  // throws
  const StateValue* type = saved.find("type");
  const auto* saved_type = type == nullptr ? nullptr : std::get_if<std::string>(type);
  TESSERA_CHECK(saved_type != nullptr, kLoad,
                "it is the state of no optimizer ({}), and this is {}", found_instead(saved),
                type_name());
  TESSERA_CHECK(*saved_type == type_name(), kLoad, "it is the state of {}, and this is {}",
                *saved_type, type_name());
  Problems problems = check_saved_groups(saved);
  check_saved_members(saved, problems);
  std::vector<LoadedState> states = read_states(saved, needs_elements, problems);
  throw_problems(kLoad, type_name(), problems);
  return states;
}

void Optimizer::check_state_dict(const StateDict& saved) const {
  checked_states(saved, /*needs_elements=*/false);
}

void Optimizer::load(const StateDict& saved, bool take) {
  const std::vector<LoadedState> states = checked_states(saved, /*needs_elements=*/true);
  for (int group = 0; group < group_count(); ++group) {
    set_group_options(group, saved_options(saved, group));
    initial_lrs_[static_cast<std::size_t>(group)] = saved.number(group_prefix(group) + kInitialLr);
  }
  states_.clear();
  steps_.clear();
  for (const LoadedState& loaded : states) {
    for (const auto& [name, value] : loaded.values) {
      if (name == kStep) {
        steps_[loaded.parameter.id()] = std::get<std::int64_t>(value);
      } else if (take) {
        states_[loaded.parameter.id()][name] = std::get<Tensor>(value);
      } else {
        const Tensor& state = state_for_update(loaded.parameter, name).tensor;
        copy_(state, to_device(std::get<Tensor>(value), state.device()));
      }
    }
  }
}

}  // namespace tessera::nn::optim
