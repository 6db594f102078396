#pragma once

/// Bringing Variables from one layout of tensor_parallel.h to another. For its own files.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera::distributed::detail {

/// One axis, and how the Variables of a forward are distributed over it. Shared by all hooks of a
/// plan.
class ParallelLayouts {
 public:
  ParallelLayouts(std::shared_ptr<const nn::Mesh> mesh, std::string axis)
      : mesh_(std::move(mesh)), axis_(std::move(axis)) {}

  int size() const { return mesh_->size(axis_); }
  int rank() const { return mesh_->rank(axis_); }
  const std::string& axis() const { return axis_; }
  const std::shared_ptr<const nn::Mesh>& mesh() const { return mesh_; }

  /// x, whose layout is `from`, as `to`. `extent`: of a Shard's whole dim, 0 where all parts are
  /// equal. Throws InvalidArgument for a dim that x does not have, or that cannot be cut evenly.
  Variable change(const Variable& x, const Placement& from, const Placement& to,
                  std::int64_t extent = 0) const;
  /// This rank's features of x, a row-wise layer's input: chunks of the last dim.
  Variable own_features(const Variable& x, const Placement& from) const;
  /// The whole of x, for work that each rank does for itself: its gradient is added up.
  Variable for_own_work(const Variable& x, const Placement& from);
  /// What the ranks' terms add up to, as `to`. Throws as change().
  Variable sum_of_terms(const Variable& x, const Placement& to) const;
  /// The sum over the ranks of a gradient of something that all have whole.
  Variable summed_gradient(const Variable& gradient) const;

  /// Remembers the layout of x as long as a handle to x exists.
  void remember(const Variable& x, const Placement& layout);
  /// What is remembered of x, or else `otherwise`.
  Placement layout_of(const Variable& x, const Placement& otherwise) const;

  /// x as `change.to`, for the call of `scope`: until forget(scope), for_own_work() of a result
  /// that is replicated shares its collectives.
  Variable prepare(const Variable& x, const Placement& from, const Placement& to,
                   const void* scope);
  void forget(const void* scope);

 private:
  struct Note {
    std::weak_ptr<Variable::Impl> of;
    Placement layout;
  };
  struct Prepared {
    Variable whole;
    Variable source;  // what it was made of
    Placement from;
    Variable working;  // the same elements, with the gradient of for_own_work(); made when asked
    const void* scope;
  };
  void check_even(const Variable& x, int dim) const;
  Variable working_copy(const Prepared& prepared) const;

  std::shared_ptr<const nn::Mesh> mesh_;
  std::string axis_;
  std::vector<Note> notes_;
  std::vector<Prepared> prepared_;
};

/// x's dim that a Shard means. Throws InvalidArgument for one that it does not have.
int dim_of(const Placement& shard, const Variable& x);
inline bool is_shard(const Placement& layout) { return std::holds_alternative<Shard>(layout); }

}  // namespace tessera::distributed::detail
