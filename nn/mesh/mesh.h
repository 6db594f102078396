#pragma once

/// What layers, losses and optimizers need of the ranks that share a parameter or a batch, and
/// nothing more. `distributed` implements it over process groups; one rank alone is LocalMesh.

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::nn {

enum class MeshReduce : std::uint8_t { kSum, kMax };

/// How many rows of dim 0 go to each rank of an axis and come from each, this one included.
struct RowCounts {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
};

/// Tensors are contiguous. Collectives run on the current stream, and every rank of the axis calls
/// the same ones in the same order.
class Mesh {
 public:
  virtual ~Mesh() = default;
  /// Axis names, outermost first.
  virtual const std::vector<std::string>& axes() const = 0;
  virtual int size(const std::string& axis)
      const = 0;  ///< ranks along an axis; InvalidArgument for an unknown one
  virtual int rank(const std::string& axis) const = 0;  ///< this rank's place along it
  /// The ranks along an axis, for comparing: equal for two axes, of any meshes, whose collectives
  /// join the same ranks. Sub-meshes of one mesh share axes.
  virtual const void* line(const std::string& axis) const;
  /// Reduces `tensor` in place over an axis, in rank order, on the current stream. Collective.
  virtual void all_reduce(const Tensor& tensor, const std::string& axis, MeshReduce op) const = 0;
  /// Every rank's `tensor`, concatenated along dim 0 in rank order; equal shapes. Collective.
  virtual Tensor all_gather(const Tensor& tensor, const std::string& axis) const = 0;
  /// The sum over the ranks, in rank order, of part `rank` of `size` equal parts along dim 0: the
  /// adjoint of all_gather. Throws InvalidArgument for a dim 0 that size does not divide.
  /// Collective.
  virtual Tensor reduce_scatter(const Tensor& tensor, const std::string& axis) const = 0;
  /// Rows of dim 0, part after part in rank order: sent[r] go to rank r, and the result has those
  /// that came, received[r] from rank r. All ranks have the same other dims, and expect of each
  /// other what is sent; a rank that does not know how much comes to it exchanges the counts first.
  /// Throws InvalidArgument for counts that are not `size` many, are negative, or do not add up to
  /// dim 0. Collective.
  virtual Tensor all_to_all(const Tensor& tensor, const std::string& axis,
                            const RowCounts& rows) const = 0;
  /// The same with equal parts. Throws InvalidArgument for a dim 0 that size does not divide.
  Tensor all_to_all(const Tensor& tensor, const std::string& axis) const;
  /// The counts of equal parts of dim 0. Throws as that.
  RowCounts equal_rows(const Tensor& tensor, const std::string& axis) const;
};

/// The mesh that a function is called with: a pointer to a Mesh, or a distributed::DeviceMesh such as
/// world.mesh(). A DeviceMesh becomes a Mesh by make_mesh(), which the compiler finds in its namespace, so
/// this header need not know it.
class MeshArgument {
 public:
  template <std::convertible_to<std::shared_ptr<const Mesh>> Pointer>
  MeshArgument(Pointer mesh) : mesh_(std::move(mesh)) {}  // NOLINT: implicit on purpose
  template <class T>
  requires requires(const T& mesh) {
    { make_mesh(mesh) } -> std::convertible_to<std::shared_ptr<const Mesh>>;
  }
  MeshArgument(const T& mesh) : mesh_(make_mesh(mesh)) {}  // NOLINT: implicit on purpose

  const std::shared_ptr<const Mesh>& get() const { return mesh_; }
  /// Throws InvalidArgument tagged `where` for a null pointer.
  const Mesh& checked(const char* where) const;

 private:
  std::shared_ptr<const Mesh> mesh_;
};

/// A mesh of this rank only: one axis "data" of size 1.
std::shared_ptr<const Mesh> local_mesh();

}  // namespace tessera::nn
