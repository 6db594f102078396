#include "tessera/nn/optim/parameter_group.h"

#include <algorithm>

#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

bool assign(double* to, const StateValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    *to = static_cast<double>(*integer);
    return true;
  }
  const auto* number = std::get_if<double>(&value);
  if (number != nullptr) *to = *number;
  return number != nullptr;
}
template <class T>
bool assign(T* to, const StateValue& value) {
  const T* typed = std::get_if<T>(&value);
  if (typed != nullptr) *to = *typed;
  return typed != nullptr;
}

const char* kind_of(double*) { return "number"; }
const char* kind_of(std::int64_t*) { return "integer"; }
const char* kind_of(bool*) { return "bool"; }

std::string load_option(const OptionPlace& option, const StateDict& saved) {
  const StateValue* value = saved.find(option.name);
  if (value == nullptr) return fmt::format("{} is missing", option.name);
  return std::visit(
      [&](auto* to) {
        return assign(to, *value) ? std::string()
                                  : fmt::format("{} is a {}, not a {}", option.name,
                                                state_value_kind(*value), kind_of(to));
      },
      option.place);
}

}  // namespace

StateDict save_options(const OptionList& options) {
  StateDict out;
  for (const OptionPlace& option : options) {
    std::visit([&](const auto* from) { out.set(option.name, *from); }, option.place);
  }
  return out;
}

std::vector<std::string> load_options(const OptionList& options, const StateDict& saved) {
  std::vector<std::string> problems;
  for (const OptionPlace& option : options) {
    std::string problem = load_option(option, saved);
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  for (const auto& [name, value] : saved) {
    const bool known = std::any_of(options.begin(), options.end(),
                                   [&](const OptionPlace& option) { return option.name == name; });
    if (!known) problems.push_back(name + " is no option of it");
  }
  return problems;
}

ParameterPredicate min_dims(int dims) {
  return [dims](const NamedParameter& named) { return named.parameter.shape().ndim() >= dims; };
}

namespace detail {

std::vector<std::vector<Parameter>> split_parameters(
    std::span<const NamedParameter> parameters, std::span<const ParameterPredicate> predicates) {
  std::vector<std::vector<Parameter>> out(predicates.size() + 1);
  for (const NamedParameter& named : parameters) {
    const auto accepting =
        std::find_if(predicates.begin(), predicates.end(),
                     [&](const ParameterPredicate& accepts) { return accepts(named); });
    out[static_cast<std::size_t>(accepting - predicates.begin())].push_back(named.parameter);
  }
  return out;
}

}  // namespace detail
}  // namespace tessera::nn::optim
