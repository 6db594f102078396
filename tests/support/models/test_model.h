// The interface of the models in the sharding tests, so that one training loop serves all. It is
// FSDPTestModel of PyTorch's FSDP tests.
//
// There `init` also shards; here construction, groups() and initialize() are separate, so the
// unsharded reference skips the sharding in the middle:
//
//     NestedWrappedModule model({.dtype = DType::kF64});
//     for (nn::Module* group : model.groups()) ...;      // shard each; skipped for the reference
//     model.initialize({.seed = 0});
//
// init_model<NestedWrappedModule>() makes the unsharded reference in one line. PyTorch's
// `deterministic` (seed 0 before construction) always holds here: equal seeds give equal models, on
// any rank.
#pragma once

#include <memory>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/variable.h"
#include "tessera/nn/init.h"
#include "tessera/nn/module.h"

namespace tessera::testing {

class TestModel {
 public:
  virtual ~TestModel() = default;

  /// The model itself.
  virtual nn::Module& root() = 0;
  /// The input of `rank`: equal at every step, different on each rank. Floating-point inputs have
  /// the model's dtype.
  virtual std::vector<Variable> get_input(Device device, int rank) const = 0;
  /// Calls the model with its hooks.
  virtual Variable call(const std::vector<Variable>& input) = 0;
  virtual Variable get_loss(const std::vector<Variable>& input, const Variable& output) = 0;
  virtual void run_backward(const Variable& loss) { backward(loss); }
  /// nn::initialize, and the model's own additions; before or after sharding.
  virtual void initialize(const nn::InitializeOptions& options) { nn::initialize(root(), options); }
  /// The modules that the recursive mode of PyTorch's FSDP tests wraps, in its order: inner ones
  /// first. If the root is not among them, the caller may shard it afterwards.
  virtual std::vector<nn::Module*> groups() = 0;
};

/// An M with its initial values.
template <class M>
std::unique_ptr<M> init_model(const typename M::Options& options = {},
                              const nn::InitializeOptions& start = {.seed = 0}) {
  auto model = std::make_unique<M>(options);
  model->initialize(start);
  return model;
}

}  // namespace tessera::testing
