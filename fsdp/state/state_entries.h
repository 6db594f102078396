#pragma once

/// Rank 0's state dict as all ranks see it: names and non-tensor values immediately, tensors on
/// request.

#include <string>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/whole_values.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// The metadata of a tensor, known before its elements are received.
struct TensorEntry {
  DType dtype = DType::kF32;
  Shape shape;
  bool has_elements = true;  ///< false on the null device
  Tensor tensor;             ///< rank 0's; undefined on the others
};

struct StateEntry {
  std::string name;
  std::variant<TensorEntry, nn::StateValue> value;  ///< a StateValue here is never a tensor
  const TensorEntry* tensor() const { return std::get_if<TensorEntry>(&value); }
};

/// Returns the first rank's dict. Collective over `ranks`.
std::vector<StateEntry> share_entries(const nn::StateDict& state, const MeshRanks& ranks);
/// Returns the first rank's elements on all ranks, on `device`. Read only: on the first rank it may
/// be the dict's own tensor. Collective over `ranks`.
Tensor share_tensor(const TensorEntry& entry, const MeshRanks& ranks, Device device,
                    const std::string& name);

}  // namespace tessera::fsdp
