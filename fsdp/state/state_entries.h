#pragma once

/// A state dict that rank 0 has, as all ranks see it: names and values that are no tensors at once,
/// tensors when asked for.

#include <string>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/mesh_ranks.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// What is known of a tensor before it arrives.
struct TensorEntry {
  DType dtype = DType::kF32;
  Shape shape;
  bool has_elements = true;  ///< false on the null device
  Tensor tensor;             ///< rank 0's; undefined on the others
};

struct StateEntry {
  std::string name;
  std::variant<TensorEntry, nn::StateValue> value;  ///< the latter is never a tensor
  const TensorEntry* tensor() const { return std::get_if<TensorEntry>(&value); }
};

/// The first rank's dict. Collective over `ranks`.
std::vector<StateEntry> share_entries(const nn::StateDict& state, const MeshRanks& ranks);
/// The elements, on `device`: the first rank's, on all, to be read only: there it may be its own
/// tensor. Collective over `ranks`.
Tensor share_tensor(const TensorEntry& entry, const MeshRanks& ranks, Device device,
                    const std::string& name);

}  // namespace tessera::fsdp
