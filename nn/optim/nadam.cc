#include "tessera/nn/optim/nadam.h"

#include <cmath>
#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.NAdam";

}  // namespace

NAdam::NAdam(const std::vector<Parameter>& parameters, const NAdamOptions& options)
    : NAdam(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

NAdam::NAdam(std::vector<Group> groups) { add_groups(std::move(groups)); }

void NAdam::check_options(const NAdamOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "eps", options.eps);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  check_at_least_0(kWhere, "momentum_decay", options.momentum_decay);
  check_betas(kWhere, options.betas);
}

OptionList NAdam::list_options(NAdamOptions& options) const {
  return {{"lr", &options.lr},
          {"beta1", &options.betas[0]},
          {"beta2", &options.betas[1]},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"momentum_decay", &options.momentum_decay},
          {"decoupled_weight_decay", &options.decoupled_weight_decay},
          {"maximize", &options.maximize}};
}

std::vector<std::string> NAdam::state_names(const NAdamOptions& /*options*/) const {
  return {"exp_avg", "exp_avg_sq"};
}

namespace {

double mu_at(const NAdamOptions& options, std::int64_t t) {
  return options.betas[0] *
         (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * options.momentum_decay));
}

}  // namespace

double NAdam::mu_product(const Parameter& parameter, std::int64_t steps) {
  MuProduct& known = mu_products_[parameter.id()];
  if (known.steps >= steps) known = {};  // another run was loaded
  const NAdamOptions& options = options_for(parameter);
  while (known.steps < steps) known.product *= mu_at(options, ++known.steps);
  return known.product;
}

void NAdam::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const NAdamOptions& options = options_for(parameter);
    const double decay = options.weight_decay;
    const Tensor g =
        descent_gradient(parameter, options.maximize, options.decoupled_weight_decay ? 0 : decay);
    const Tensor average = filled_state(parameter, "exp_avg"),
                 squares = filled_state(parameter, "exp_avg_sq");
    lerp_(average, g, 1 - options.betas[0]);
    mul_(squares, options.betas[1]);
    addcmul_(squares, g, g, 1 - options.betas[1]);
    const std::int64_t t = steps(parameter) + 1;
    const double mu = mu_at(options, t), mu_next = mu_at(options, t + 1),
                 product = mu_product(parameter, t),
                 correction = 1 - std::pow(options.betas[1], static_cast<double>(t));
    const Tensor divisor = add(sqrt(div(squares, correction)), options.eps);
    const Tensor blend =
        add(mul(g, (1 - mu) / (1 - product)), mul(average, mu_next / (1 - product * mu_next)));
    descend(parameter, div(blend, divisor), options.lr,
            options.decoupled_weight_decay ? options.lr * decay : 0);
  }
}

}  // namespace tessera::nn::optim
