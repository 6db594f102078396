#include "tessera/nn/optim/step_in_backward.h"

#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.StepInBackward";

void check_not_sharded(const Parameter& parameter) {
  const ParameterOwner* owner = parameter.owner();
  TESSERA_CHECK_AS(StateError, owner == nullptr, kWhere,
                   "\"{}\" is sharded by group {}, which collects its gradient and sets it after "
                   "the reduce, where no hook runs: call step() after backward",
                   parameter.name(), owner->group_name());
}

}  // namespace

StepInBackward::StepInBackward(Optimizer& optimizer) {
  for (const Parameter& parameter : optimizer.parameters()) {
    check_not_sharded(parameter);
    parameter.local();  // throws
    TESSERA_CHECK_AS(StateError, !parameter.grad().defined(), kWhere,
                     "\"{}\" has a gradient, to which the next backward would add: call "
                     "zero_grad() first",
                     parameter.name());
  }
  for (const Parameter& parameter : optimizer.parameters()) {
    Variable local = parameter.local();
    handles_.push_back(
        local.register_post_accumulate_hook([&optimizer, parameter](const Variable&) {
          check_not_sharded(parameter);
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
