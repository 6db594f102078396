#include "tessera/nn/optim/parameter_group.h"

#include <algorithm>

namespace tessera::nn::optim {

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
