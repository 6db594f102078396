#pragma once

/// What layers, losses and optimizers need of the ranks that share a parameter or a batch, and
/// nothing more. `distributed` implements it over process groups; one rank alone is LocalMesh.

#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::nn {

enum class MeshReduce : std::uint8_t { kSum, kMax };

class Mesh {
 public:
  virtual ~Mesh() = default;
  /// Axis names, outermost first.
  virtual const std::vector<std::string>& axes() const = 0;
  virtual int size(const std::string& axis)
      const = 0;  ///< ranks along an axis; InvalidArgument for an unknown one
  virtual int rank(const std::string& axis) const = 0;  ///< this rank's place along it
  /// Reduces `tensor` in place over an axis, in rank order, on the current stream. Collective.
  virtual void all_reduce(const Tensor& tensor, const std::string& axis, MeshReduce op) const = 0;
  /// Every rank's `tensor`, concatenated along dim 0 in rank order; equal shapes. Collective.
  virtual Tensor all_gather(const Tensor& tensor, const std::string& axis) const = 0;
};

/// A mesh of this rank only: one axis "data" of size 1.
std::shared_ptr<const Mesh> local_mesh();

}  // namespace tessera::nn
