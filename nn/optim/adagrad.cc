#include "tessera/nn/optim/adagrad.h"

#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.Adagrad";

}  // namespace

Adagrad::Adagrad(const std::vector<Parameter>& parameters, const AdagradOptions& options)
    : Adagrad(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Adagrad::Adagrad(std::vector<Group> groups) { add_groups(std::move(groups)); }

void Adagrad::check_options(const AdagradOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "lr_decay", options.lr_decay);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  check_at_least_0(kWhere, "initial_accumulator_value", options.initial_accumulator_value);
  check_at_least_0(kWhere, "eps", options.eps);
}

OptionList Adagrad::list_options(AdagradOptions& options) const {
  return {{"lr", &options.lr},
          {"lr_decay", &options.lr_decay},
          {"weight_decay", &options.weight_decay},
          {"initial_accumulator_value", &options.initial_accumulator_value},
          {"eps", &options.eps},
          {"maximize", &options.maximize}};
}

std::vector<std::string> Adagrad::state_names(const AdagradOptions& /*options*/) const {
  return {"sum"};
}

void Adagrad::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const AdagradOptions& options = options_for(parameter);
    const Tensor g = descent_gradient(parameter, options.maximize, options.weight_decay);
    const Tensor total = filled_state(parameter, "sum", options.initial_accumulator_value);
    addcmul_(total, g, g);
    const double lr = options.lr / (1 + static_cast<double>(steps(parameter)) * options.lr_decay);
    descend(parameter, div(g, add(sqrt(total), options.eps)), lr);
  }
}

}  // namespace tessera::nn::optim
