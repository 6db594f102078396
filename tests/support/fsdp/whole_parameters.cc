#include "tessera/tests/support/fsdp/whole_parameters.h"

#include <optional>

#include "tessera/fsdp/state/full_parameters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {

void zero_model(nn::Module& model, const ZeroModelOptions& options) {
  if (options.summon_full) {
    fsdp::FullParameters full(model);
    for (const nn::Parameter& parameter : model.parameters()) zero_(parameter.value().tensor());
    full.close();
  } else {
    for (const nn::Parameter& parameter : model.parameters()) zero_(parameter.local().tensor());
  }
  if (!options.zero_buffers) return;
  for (const nn::NamedBuffer& named : model.named_buffers()) zero_(named.buffer.tensor());
}

std::vector<Tensor> get_full_params(nn::Module& model, const FullParamsOptions& options) {
  fsdp::FullParameters full(model, {.recurse = options.recurse, .writeback = false});
  std::vector<Tensor> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    if (parameter.state() == nn::ParameterState::kFull)
      out.push_back(clone(parameter.value().tensor()));
  }
  full.close();
  return out;
}

}  // namespace tessera::testing
