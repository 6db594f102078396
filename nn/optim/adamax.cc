#include "tessera/nn/optim/adamax.h"

#include <cmath>
#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.Adamax";

}  // namespace

Adamax::Adamax(const std::vector<Parameter>& parameters, const AdamaxOptions& options)
    : Adamax(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Adamax::Adamax(std::vector<Group> groups) { add_groups(std::move(groups)); }

void Adamax::check_options(const AdamaxOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "eps", options.eps);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  check_betas(kWhere, options.betas);
}

OptionList Adamax::list_options(AdamaxOptions& options) const {
  return {{"lr", &options.lr},
          {"beta1", &options.betas[0]},
          {"beta2", &options.betas[1]},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"maximize", &options.maximize}};
}

std::vector<std::string> Adamax::state_names(const AdamaxOptions& /*options*/) const {
  return {"exp_avg", "exp_inf"};
}

void Adamax::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const AdamaxOptions& options = options_for(parameter);
    const Tensor g = descent_gradient(parameter, options.maximize, options.weight_decay);
    const Tensor average = filled_state(parameter, "exp_avg"),
                 largest = filled_state(parameter, "exp_inf");
    lerp_(average, g, 1 - options.betas[0]);
    copy_(largest, maximum(mul(largest, options.betas[1]), add(abs(g), options.eps)));
    const double t = static_cast<double>(steps(parameter) + 1);
    descend(parameter, div(average, largest), options.lr / (1 - std::pow(options.betas[0], t)));
  }
}

}  // namespace tessera::nn::optim
