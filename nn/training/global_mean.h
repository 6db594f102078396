#pragma once

/// The mean over what all ranks have together, for losses that are computed piece by piece.
///
///     const nn::GlobalMean mean(local_count, world.mesh());       // one all-reduce
///     for (...) backward(mean(loss_sum_of_some_rows));     // the pieces add up to
///     global_mean(...)

#include <cstdint>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera::nn {

/// The factor of global_mean (loss.h), which says what it is for: (ranks along `axis`) / (global
/// count), in f64. Used by the thread of its rank.
class GlobalMean {
 public:
  /// `local_count`: what this rank has of it, over all pieces; also 0. Throws InvalidArgument for a
  /// negative one. Collective.
  GlobalMean(std::int64_t local_count, const MeshArgument& mesh, const std::string& axis = "data",
             Device device = default_device());

  /// loss_sum times the factor, which is rounded once to the loss's dtype. Throws InvalidArgument
  /// unless loss_sum has one element.
  Variable operator()(const Variable& loss_sum) const;

 private:
  Tensor scale_;
};

}  // namespace tessera::nn
