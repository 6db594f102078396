#include "tessera/nn/optim/rmsprop.h"

#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.RMSprop";

}  // namespace

RMSprop::RMSprop(const std::vector<Parameter>& parameters, const RMSpropOptions& options)
    : RMSprop(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

RMSprop::RMSprop(std::vector<Group> groups) { add_groups(std::move(groups)); }

void RMSprop::check_options(const RMSpropOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "alpha", options.alpha);
  check_at_least_0(kWhere, "eps", options.eps);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  check_at_least_0(kWhere, "momentum", options.momentum);
}

OptionList RMSprop::list_options(RMSpropOptions& options) const {
  return {{"lr", &options.lr},
          {"alpha", &options.alpha},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"momentum", &options.momentum},
          {"centered", &options.centered},
          {"maximize", &options.maximize}};
}

std::vector<std::string> RMSprop::state_names(const RMSpropOptions& options) const {
  std::vector<std::string> names = {"square_avg"};
  if (options.momentum > 0) names.emplace_back("momentum_buffer");
  if (options.centered) names.emplace_back("grad_avg");
  return names;
}

void RMSprop::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const RMSpropOptions& options = options_for(parameter);
    const Tensor g = descent_gradient(parameter, options.maximize, options.weight_decay);
    const Tensor squares = filled_state(parameter, "square_avg");
    mul_(squares, options.alpha);
    addcmul_(squares, g, g, 1 - options.alpha);
    Tensor variance = squares;
    if (options.centered) {
      const Tensor average = filled_state(parameter, "grad_avg");
      lerp_(average, g, 1 - options.alpha);
      variance = addcmul(squares, average, average, -1);
    }
    const Tensor direction = div(g, add(sqrt(variance), options.eps));
    if (options.momentum == 0) {
      descend(parameter, direction, options.lr);
      continue;
    }
    const Tensor momentum = filled_state(parameter, "momentum_buffer");
    mul_(momentum, options.momentum);
    add_(momentum, direction);
    descend(parameter, momentum, options.lr);
  }
}

}  // namespace tessera::nn::optim
