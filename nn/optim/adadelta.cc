#include "tessera/nn/optim/adadelta.h"

#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.Adadelta";

}  // namespace

Adadelta::Adadelta(const std::vector<Parameter>& parameters, const AdadeltaOptions& options)
    : Adadelta(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Adadelta::Adadelta(std::vector<Group> groups) { add_groups(std::move(groups)); }

void Adadelta::check_options(const AdadeltaOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "eps", options.eps);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  TESSERA_CHECK(options.rho >= 0 && options.rho <= 1, kWhere, "rho is {}; it lies in [0, 1]",
                options.rho);
}

OptionList Adadelta::list_options(AdadeltaOptions& options) const {
  return {{"lr", &options.lr},
          {"rho", &options.rho},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"maximize", &options.maximize}};
}

std::vector<std::string> Adadelta::state_names(const AdadeltaOptions& /*options*/) const {
  return {"square_avg", "acc_delta"};
}

void Adadelta::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const AdadeltaOptions& options = options_for(parameter);
    const Tensor g = descent_gradient(parameter, options.maximize, options.weight_decay);
    const Tensor squares = filled_state(parameter, "square_avg"),
                 moved = filled_state(parameter, "acc_delta");
    mul_(squares, options.rho);
    addcmul_(squares, g, g, 1 - options.rho);
    const Tensor direction =
        mul(div(sqrt(add(moved, options.eps)), sqrt(add(squares, options.eps))), g);
    mul_(moved, options.rho);
    addcmul_(moved, direction, direction, 1 - options.rho);
    descend(parameter, direction, options.lr);
  }
}

}  // namespace tessera::nn::optim
