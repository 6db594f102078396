#include "tessera/nn/optim/radam.h"

#include <cmath>
#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.RAdam";

}  // namespace

RAdam::RAdam(const std::vector<Parameter>& parameters, const RAdamOptions& options)
    : RAdam(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

RAdam::RAdam(std::vector<Group> groups) { add_groups(std::move(groups)); }

void RAdam::check_options(const RAdamOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "eps", options.eps);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  check_betas(kWhere, options.betas);
}

OptionList RAdam::list_options(RAdamOptions& options) const {
  return {{"lr", &options.lr},
          {"beta1", &options.betas[0]},
          {"beta2", &options.betas[1]},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"decoupled_weight_decay", &options.decoupled_weight_decay},
          {"maximize", &options.maximize}};
}

std::vector<std::string> RAdam::state_names(const RAdamOptions& /*options*/) const {
  return {"exp_avg", "exp_avg_sq"};
}

void RAdam::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const RAdamOptions& options = options_for(parameter);
    const double decay = options.weight_decay;
    const Tensor g =
        descent_gradient(parameter, options.maximize, options.decoupled_weight_decay ? 0 : decay);
    const Tensor average = filled_state(parameter, "exp_avg"),
                 squares = filled_state(parameter, "exp_avg_sq");
    lerp_(average, g, 1 - options.betas[0]);
    mul_(squares, options.betas[1]);
    addcmul_(squares, g, g, 1 - options.betas[1]);
    const double t = static_cast<double>(steps(parameter) + 1),
                 power = std::pow(options.betas[1], t), longest = 2 / (1 - options.betas[1]) - 1,
                 length = longest - 2 * t * power / (1 - power);
    Tensor direction = average;
    double factor = options.lr / (1 - std::pow(options.betas[0], t));
    if (length > 5) {
      direction = div(average, add(sqrt(squares), options.eps));
      factor *= std::sqrt((length - 4) * (length - 2) * longest /
                          ((longest - 4) * (longest - 2) * length) * (1 - power));
    }
    descend(parameter, direction, factor, options.decoupled_weight_decay ? options.lr * decay : 0);
  }
}

}  // namespace tessera::nn::optim
