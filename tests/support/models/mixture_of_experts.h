// A layer that differs from rank to rank between layers that do not: MixtureOfExperts of PyTorch's
// FSDP tests, for tests of parameters that are not reduced over all ranks.
//
//     Linear(8, 12), shared Linear(12, 23), expert Linear(23, 12), Linear(12, 8)
//
// The expert's parameters have the tag "expert", one name, and different initial values on each
// rank of the mesh. Groups: the expert over this rank alone, then the shared layer over all ranks;
// the first and last layer are the root's. If nothing is sharded, run_backward() itself averages
// the other gradients over the mesh. The delay before values are freed, which PyTorch's class has,
// belongs to the sharding schedule: a hook there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/tests/support/models/nested.h"

namespace tessera::testing {

struct MixtureOfExpertsOptions {
  std::shared_ptr<const nn::Mesh> mesh = nn::local_mesh();  ///< with an axis "data"
  DType dtype = DType::kF32;
};

class MixtureOfExperts final : public NestedModel {
 public:
  using Options = MixtureOfExpertsOptions;
  explicit MixtureOfExperts(const MixtureOfExpertsOptions& options = {});

  /// The expert draws from seed + 42 + its rank, everything else from the seed.
  void initialize(const nn::InitializeOptions& options) override;
  void run_backward(const Variable& loss) override;
  /// Averages the gradients of all unsharded parameters over the mesh's ranks. run_backward() calls
  /// it after backward().
  void average_gradients();
  std::vector<nn::Module*> groups() override { return {expert_, shared_}; }

  nn::Linear& shared() { return *shared_; }
  nn::Linear& expert() { return *expert_; }
  std::int64_t num_expert_params() const { return num_expert_params_; }

 private:
  std::shared_ptr<const nn::Mesh> mesh_;
  nn::Linear* shared_;
  nn::Linear* expert_;
  std::int64_t num_expert_params_ = 0;
};

}  // namespace tessera::testing
