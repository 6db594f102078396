#pragma once

/// Batch norm with the statistics of several ranks: what BatchNorm1d and 2d compute with a mesh.

#include <memory>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/tensor/ops/norm.h"

namespace tessera::nn::detail {

/// The ranks whose samples make up a batch: those along an axis of the mesh.
struct RanksOfBatch {
  std::shared_ptr<const Mesh> mesh;  ///< null: this rank alone
  std::string axis;
};

/// batch_norm of the samples of all ranks together, training; `ranks.mesh` is not null. Updates the
/// running statistics in options, to equal bits on every rank. x may hold no samples. Collective,
/// in forward and in backward (where x needs a gradient). Once, not twice.
Variable sync_batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                         const BatchNormOptions& options, const RanksOfBatch& ranks);

}  // namespace tessera::nn::detail
