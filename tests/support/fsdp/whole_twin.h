// The reference of sharded training: the model whole on every rank, with the definition of data
// parallelism spelled out.
//
// Every rank computes its own batch; then gradients are added over the ranks in rank order and
// multiplied by 1 / ranks. With a compute dtype, each step casts the stored parameters and buffers
// to it (a model of its own), and its gradients are reduced in `reduce_dtype` and cast back.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

struct WholeTwinOptions {
  std::shared_ptr<distributed::ProcessGroup> group;
  // The model computes in this dtype, parameters stay as they are: fsdp::MixedPrecision.
  std::optional<DType> param_dtype = {};
  std::optional<DType> reduce_dtype = {};  // unset: param_dtype, or the stored one
  std::optional<DType> output_dtype = {};  // of the model's result
  bool reduces_by_itself = false;          // the model's run_backward() leaves averages
};

// Floating Variables in another dtype.
std::vector<Variable> cast_floating(const std::vector<Variable>& input, DType dtype);

class WholeTwin {
 public:
  // `stored` is initialised. `computing`, of the same class and in param_dtype: with one only.
  WholeTwin(std::unique_ptr<TestModel> stored, std::unique_ptr<TestModel> computing,
            WholeTwinOptions options);

  // What the optimizer updates.
  nn::Module& root() { return stored_->root(); }
  // The model that computes.
  TestModel& model() { return computing_ ? *computing_ : *stored_; }
  // This rank's loss of its batch, given in any floating dtype.
  Variable loss(const std::vector<Variable>& input);
  // Backward and the reduction: grad() of root()'s parameters is that of all ranks.
  void run_backward(const Variable& loss);

 private:
  void reduce_gradients();

  std::unique_ptr<TestModel> stored_, computing_;
  WholeTwinOptions options_;
};

}  // namespace tessera::testing
