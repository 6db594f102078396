// The reference of sharded training: the full model on every rank, and the definition of data
// parallelism.
//
// Each rank computes its own batch. Gradients are then added over the ranks in rank order and
// multiplied by 1 / ranks. With a compute dtype, each step casts the stored parameters and buffers
// into a second model of that dtype; its gradients are reduced in `reduce_dtype` and cast back.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

struct WholeTwinOptions {
  std::shared_ptr<distributed::ProcessGroup> group;
  // The model computes in this dtype, while parameters keep theirs: fsdp::MixedPrecision.
  std::optional<DType> param_dtype = {};
  std::optional<DType> reduce_dtype = {};  // unset: param_dtype, or the stored dtype
  std::optional<DType> output_dtype = {};  // of the model's result
  bool reduces_by_itself = false;          // the model's run_backward() averages gradients
};

// Casts floating-point Variables.
std::vector<Variable> cast_floating(const std::vector<Variable>& input, DType dtype);

class WholeTwin {
 public:
  // `stored` is initialised. `computing` has the same class and the dtype param_dtype; null without
  // one.
  WholeTwin(std::unique_ptr<TestModel> stored, std::unique_ptr<TestModel> computing,
            WholeTwinOptions options);

  // The module that the optimizer updates.
  nn::Module& root() { return stored_->root(); }
  // The model that computes.
  TestModel& model() { return computing_ ? *computing_ : *stored_; }
  // This rank's loss of its batch. The batch may have any floating-point dtype.
  Variable loss(const std::vector<Variable>& input);
  // Backward and the reduction: afterwards grad() of root()'s parameters is that of all ranks.
  void run_backward(const Variable& loss);

 private:
  void reduce_gradients();

  std::unique_ptr<TestModel> stored_, computing_;
  WholeTwinOptions options_;
};

}  // namespace tessera::testing
