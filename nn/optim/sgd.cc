#include "tessera/nn/optim/sgd.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/ops_optim.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.SGD";

void check_options(const SgdOptions& options) {
  TESSERA_CHECK(options.lr >= 0, kWhere, "lr is {}; give one that is at least 0", options.lr);
  TESSERA_CHECK(options.momentum >= 0, kWhere, "momentum is {}; it is at least 0",
                options.momentum);
  TESSERA_CHECK(options.weight_decay >= 0, kWhere, "weight_decay is {}; it is at least 0",
                options.weight_decay);
  TESSERA_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), kWhere,
                "nesterov needs momentum > 0 and dampening 0, got {} and {}", options.momentum,
                options.dampening);
}

}  // namespace

SGD::SGD(const std::vector<Parameter>& parameters, const SgdOptions& options)
    : Optimizer(parameters), options_(options) {
  check_options(options);
}

void SGD::set_lr(double lr) {
  TESSERA_CHECK(lr >= 0, kWhere, "lr is {}; give one that is at least 0", lr);
  options_.lr = lr;
}

void SGD::step() {
  std::vector<SgdSegment> segments;
  for (const Parameter& parameter : parameters_to_update()) {
    SgdSegment segment{.parameter = parameter.local().tensor(),
                       .gradient = contiguous(parameter.grad()),
                       .momentum = {},
                       .lr = options_.lr,
                       .momentum_factor = options_.momentum,
                       .dampening = options_.dampening,
                       .weight_decay = options_.weight_decay,
                       .nesterov = options_.nesterov};
    if (options_.momentum != 0) {
      const StateTensor momentum = state_for_update(parameter, "momentum");
      segment.momentum = momentum.tensor;
      segment.first_step = momentum.is_new;
    }
    segments.push_back(std::move(segment));
  }
  if (!segments.empty()) sgd_step(segments);
}

}  // namespace tessera::nn::optim
