// What tests do with the whole parameters of a sharded model: zero them, and copy them.
#pragma once

#include <vector>

#include "tessera/nn/module.h"

namespace tessera::testing {

struct ZeroModelOptions {
  bool zero_buffers = false;
  // Through fsdp::FullParameters with write-back (collective), as a user would; else local() is
  // zeroed, of each rank by itself.
  bool summon_full = true;
};
// Zeroes all parameters: so that a state that does not bring everything back shows in the numbers.
void zero_model(nn::Module& model, const ZeroModelOptions& options = {});

struct FullParamsOptions {
  bool recurse = true;  // false: of the module's own group alone; the others' stay out
};
// Copies of the values of whole parameters, in the stored dtype: they outlive the guard.
// Collective.
std::vector<Tensor> get_full_params(nn::Module& model, const FullParamsOptions& options = {});

}  // namespace tessera::testing
