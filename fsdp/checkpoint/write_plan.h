#pragma once

/// Which rank writes which part of a state: decided by all ranks together before anything is written.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

struct WritePlan {
  /// Whole tensors. StoredBox::file is the rank that writes the box, and `begin` is not known yet.
  std::vector<StoredTensor> tensors;
  nn::StateDict values;
  std::vector<std::uint64_t> bytes;  ///< of the elements, by rank
};

/// The same on all ranks. A tensor that the dict marks as a part comes from the ranks that have its
/// boxes; if several have a box, the one with the least to write does it. Other tensors and values
/// come from the first rank that has them. Tensors without a mark are saved as they are.
///
/// Throws InvalidArgument on all ranks if ranks have tensors of one name that differ in dtype or in
/// the shape of the whole, if a name is a tensor on one rank and a value on another, if no rank has
/// some elements, and for an undefined part; StateError for tensors on the null device. Collective over
/// the group; null: this rank alone.
WritePlan plan_write(const nn::StateDict& state, distributed::ProcessGroup* group);

/// The tensors that `rank` writes, with their names in its file, in the order of the plan: views of
/// those of the dict.
std::vector<std::pair<std::string, Tensor>> tensors_of(const WritePlan& plan, int rank,
                                                       const nn::StateDict& state);

}  // namespace tessera::checkpoint
