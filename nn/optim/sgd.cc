#include "tessera/nn/optim/sgd.h"

#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/optim.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.SGD";
constexpr const char* kMomentum = "momentum";

}  // namespace

SGD::SGD(const std::vector<Parameter>& parameters, const SgdOptions& options)
    : SGD(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

SGD::SGD(std::vector<Group> groups) { add_groups(std::move(groups)); }

void SGD::check_options(const SgdOptions& options) const {
  TESSERA_CHECK(options.lr >= 0, kWhere, "lr is {}; give one that is at least 0", options.lr);
  TESSERA_CHECK(options.momentum >= 0, kWhere, "momentum is {}; it is at least 0",
                options.momentum);
  TESSERA_CHECK(options.weight_decay >= 0, kWhere, "weight_decay is {}; it is at least 0",
                options.weight_decay);
  TESSERA_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), kWhere,
                "nesterov needs momentum > 0 and dampening 0, got {} and {}", options.momentum,
                options.dampening);
}

OptionList SGD::list_options(SgdOptions& options) const {
  return {{"lr", &options.lr},
          {"momentum", &options.momentum},
          {"dampening", &options.dampening},
          {"weight_decay", &options.weight_decay},
          {"nesterov", &options.nesterov},
          {"maximize", &options.maximize}};
}

std::vector<std::string> SGD::state_names(const SgdOptions& options) const {
  if (options.momentum == 0) return {};
  return {kMomentum};
}

void SGD::update(const std::vector<Parameter>& parameters) {
  std::vector<SgdSegment> segments;
  for (const Parameter& parameter : parameters) {
    const SgdOptions& options = options_for(parameter);
    SgdSegment segment{.parameter = parameter.local().tensor(),
                       .gradient = contiguous(parameter.grad()),
                       .momentum = {},
                       .lr = options.lr,
                       .momentum_factor = options.momentum,
                       .dampening = options.dampening,
                       .weight_decay = options.weight_decay,
                       .nesterov = options.nesterov,
                       .maximize = options.maximize};
    if (options.momentum != 0) {
      const StateTensor momentum = state_for_update(parameter, kMomentum);
      segment.momentum = momentum.tensor;
      segment.first_step = momentum.is_new;
    }
    segments.push_back(std::move(segment));
  }
  step_by_kind(segments, [&](const std::vector<SgdSegment>& part) {
    sgd_step(part, this->gradient_scale());
  });
}

}  // namespace tessera::nn::optim
