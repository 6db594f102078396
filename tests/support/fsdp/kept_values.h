#pragma once

/// The values that stay in memory between steps.

#include <algorithm>
#include <cstdint>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/runtime/module_state.h"
#include "tessera/tensor/memory/allocator.h"

namespace tessera::testing {

/// Gathered bytes of the groups that are sharded and keep their memory because an optimizer may
/// write cast copies there. Nothing else may stay.
inline std::int64_t kept_value_bytes(nn::Module& root) {
  std::int64_t bytes = 0;
  for (nn::Module* module : fsdp::sharded_modules(root)) {
    const fsdp::Handle handle = fsdp::of(*module);
    const fsdp::ParamGroup* group = handle.module_state().group();
    if (group == nullptr || handle.state() != fsdp::GroupState::kSharded) continue;
    const bool keeps =
        std::any_of(group->parameters().begin(), group->parameters().end(),
                    [](const auto& each) { return each.parameter().cast_copy().defined(); });
    if (keeps)
      bytes += counted_bytes(group->compute_device().type,
                             static_cast<std::size_t>(handle.gathered_bytes()));
  }
  return bytes;
}

}  // namespace tessera::testing
