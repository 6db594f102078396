#pragma once

/// The entries of a checkpoint's model, for a load.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/fsdp/state/state_entries.h"
#include "tessera/nn/module.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

/// Before each name of a model's entry in the index.
inline constexpr const char* kModelPrefix = "model.";

/// The entries after the model's before_load hooks, which may rename entries and put others in. Tensors
/// on the null device stand for those on the disk.
class ModelEntries {
 public:
  /// The index must outlive the object. Runs the hooks.
  ModelEntries(nn::Module& model, const Index& index);

  const std::vector<fsdp::StateEntry>& all() const { return all_; }
  /// The tensor on the disk that an entry stands for; null for values, and for tensors of hooks.
  const StoredTensor* stored(std::size_t entry) const;

 private:
  const StoredTensor* stored_of(const Tensor& tensor) const;

  nn::StateDict saved_;                                   // keeps the stand-ins
  std::map<std::uint64_t, const StoredTensor*> on_disk_;  // by the storage of the stand-in
  std::vector<fsdp::StateEntry> all_;
};

}  // namespace tessera::checkpoint
