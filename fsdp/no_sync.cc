#include "tessera/fsdp/no_sync.h"

#include "tessera/tensor/check.h"

namespace tessera::fsdp {

NoSync::NoSync(nn::Module& model) {
  const std::vector<nn::Module*> sharded = sharded_modules(model);
  TESSERA_CHECK(!sharded.empty(), "fsdp.NoSync",
                "nothing in {} is sharded, so it has nothing to put off; guard the model that "
                "fully_shard or replicate was called on",
                model.type_name());
  for (const nn::Module* module : sharded) {
    const Handle handle = of(*module);
    before_.push_back({handle, handle.requires_gradient_sync(), handle.requires_all_reduce()});
  }
  // All values were read first, since handles of one group share a state.
  for (const Before& each : before_)
    each.handle.set_requires_gradient_sync(false, {.recurse = false});
}

NoSync::~NoSync() {
  for (const Before& each : before_) {
    each.handle.set_requires_gradient_sync(each.requires_gradient_sync, {.recurse = false});
    // The call above sets both reductions. If they differed before, the second one is set
    // separately.
    if (each.requires_all_reduce != each.requires_gradient_sync)
      each.handle.set_requires_all_reduce(each.requires_all_reduce, {.recurse = false});
  }
}

}  // namespace tessera::fsdp
