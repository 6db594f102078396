#pragma once

/// What loads of whole tensors into a sharded model share, wherever the tensors come from.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/fsdp/state/state_entries.h"
#include "tessera/fsdp/state/state_load_plan.h"
#include "tessera/nn/module.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// The dict after the model's before_load hooks.
nn::StateDict before_load(nn::Module& module, const nn::StateDict& state);

struct EntriesLoad {
  const char* where;  ///< tag of errors
  bool strict = true;
  Device device = kCpu;  ///< of members that are not materialized
  std::uint64_t seed = 1;
  std::vector<std::string> only = {};  ///< as FullLoadPlan
  GatherTexts all_gather_texts;
  /// Called before the first member changes, when the entries fit; may be empty.
  std::function<void(const FullLoadPlan& plan)> check;
  /// Brings an entry that some rank knows to its member, on all ranks.
  std::function<void(const FullLoadPlan& plan, std::size_t entry)> copy;
  /// Runs what follows the copies: buffers that are not saved, and after_load hooks. Empty: runs it.
  std::function<void(const std::function<void()>& work)> finish;
};

/// Loads entries that are the same on all ranks, with the model's after_load hooks. Collective. Throws
/// as load_full_state_dict().
nn::LoadReport load_entries(nn::Module& module, const std::vector<StateEntry>& entries,
                            const EntriesLoad& load);

}  // namespace tessera::fsdp
