#include "tessera/fsdp/replicate.h"

#include "tessera/fsdp/attach.h"

namespace tessera::fsdp {

Handle replicate(nn::Module& module, const ReplicateOptions& options) {
  return replicate(std::vector<nn::Module*>{&module}, options);
}

Handle replicate(const std::vector<nn::Module*>& modules, const ReplicateOptions& options) {
  return attach(modules,
                {.mesh = options.mesh,
                 .mixed_precision = options.mixed_precision,
                 .offload = options.offload,
                 .ignored_parameters = options.ignored_parameters,
                 .ignored_modules = options.ignored_modules},
                Kind::kReplicate);
}

}  // namespace tessera::fsdp
