#include "tessera/nn/optim/lion.h"

#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/optim.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.Lion";
constexpr const char* kAverage = "exp_avg";

}  // namespace

Lion::Lion(const std::vector<Parameter>& parameters, const LionOptions& options)
    : Lion(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Lion::Lion(std::vector<Group> groups) { add_groups(std::move(groups)); }

void Lion::check_options(const LionOptions& options) const {
  TESSERA_CHECK(options.lr >= 0, kWhere, "lr is {}; give one that is at least 0", options.lr);
  for (double beta : options.betas) {
    TESSERA_CHECK(beta >= 0 && beta < 1, kWhere, "betas are {} and {}; they lie in [0, 1)",
                  options.betas[0], options.betas[1]);
  }
  TESSERA_CHECK(options.weight_decay >= 0, kWhere, "weight_decay is {}; it is at least 0",
                options.weight_decay);
}

OptionList Lion::list_options(LionOptions& options) const {
  return {{"lr", &options.lr},
          {"beta1", &options.betas[0]},
          {"beta2", &options.betas[1]},
          {"weight_decay", &options.weight_decay},
          {"maximize", &options.maximize}};
}

std::vector<std::string> Lion::state_names(const LionOptions& /*options*/) const {
  return {kAverage};
}

void Lion::update(const std::vector<Parameter>& parameters) {
  std::vector<LionSegment> segments;
  for (const Parameter& parameter : parameters) {
    const LionOptions& options = options_for(parameter);
    const auto [average, is_new] = state_for_update(parameter, kAverage);
    if (is_new) zero_(average);
    segments.push_back({.parameter = parameter.local().tensor(),
                        .gradient = contiguous(parameter.grad()),
                        .exp_avg = average,
                        .lr = options.lr,
                        .beta1 = options.betas[0],
                        .beta2 = options.betas[1],
                        .weight_decay = options.weight_decay,
                        .maximize = options.maximize});
  }
  step_by_kind(segments, [&](const std::vector<LionSegment>& part) {
    lion_step(part, this->gradient_scale());
  });
}

}  // namespace tessera::nn::optim
