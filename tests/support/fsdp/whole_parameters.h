// Zeroes or copies the full parameters of a sharded model.
#pragma once

#include <vector>

#include "tessera/nn/module.h"

namespace tessera::testing {

struct ZeroModelOptions {
  bool zero_buffers = false;
  // true: through fsdp::FullParameters with write-back (collective), like a user. false: each rank
  // zeroes its local().
  bool summon_full = true;
};
// Zeroes all parameters, so that a state that does not restore everything changes the numbers.
void zero_model(nn::Module& model, const ZeroModelOptions& options = {});

struct FullParamsOptions {
  bool recurse = true;  // false: only the module's own group, without the groups below
};
// Copies of the full parameters in the stored dtype, which outlive the guard. Collective.
std::vector<Tensor> get_full_params(nn::Module& model, const FullParamsOptions& options = {});

}  // namespace tessera::testing
