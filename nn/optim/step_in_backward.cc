#include "tessera/nn/optim/step_in_backward.h"

#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.StepInBackward";

void check_same_leaf(const Parameter& parameter, const Variable& hooked) {
  TESSERA_CHECK_AS(StateError, parameter.local().same_as(hooked), kWhere,
                   "\"{}\" was sharded after this was made, and collects its gradient elsewhere "
                   "now: make it after fully_shard",
                   parameter.name());
}

}  // namespace

StepInBackward::StepInBackward(Optimizer& optimizer) {
  for (const Parameter& parameter : optimizer.parameters()) {
    parameter.local();  // throws
    TESSERA_CHECK_AS(StateError, !parameter.grad().defined(), kWhere,
                     "\"{}\" has a gradient, to which the next backward would add: call "
                     "zero_grad() first",
                     parameter.name());
  }
  for (const Parameter& parameter : optimizer.parameters()) {
    Variable local = parameter.local();
    handles_.push_back(
        local.register_post_accumulate_hook([&optimizer, parameter](const Variable& hooked) {
          check_same_leaf(parameter, hooked);
          optimizer.step(parameter);
          Parameter handle = parameter;
          handle.set_grad({});
        }));
  }
}

StepInBackward::~StepInBackward() {
  for (HookHandle& handle : handles_) handle.remove();
}

}  // namespace tessera::nn::optim
