// What the models of the sharding tests have in common, so that one training loop serves all.
//
// In the seeds: FSDPTestModel. There `init` also shards; here construction, groups() and
// initialize() are separate, so a plain twin leaves out the sharding in the middle:
//
//     NestedWrappedModule model({.dtype = DType::kF64});
//     for (nn::Module* group : model.groups()) ...;      // shard each; nothing for the plain twin
//     model.initialize({.seed = 0});
//
// and init_model<NestedWrappedModule>() is the plain twin in one line. The seeds' `deterministic`
// (seed 0 before construction) is always so here: equal seeds give equal models, on any rank.
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
  /// What `rank` puts in at every step: equal at each call. Floating inputs are of the model's
  /// dtype, and another for each rank.
  virtual std::vector<Variable> get_input(Device device, int rank) const = 0;
  /// Calls the model with its hooks.
  virtual Variable call(const std::vector<Variable>& input) = 0;
  virtual Variable get_loss(const std::vector<Variable>& input, const Variable& output) = 0;
  virtual void run_backward(const Variable& loss) { backward(loss); }
  /// nn::initialize, and what the model adds to it; before or after sharding.
  virtual void initialize(const nn::InitializeOptions& options) { nn::initialize(root(), options); }
  /// The modules that the seeds' recursive mode makes groups of, in the order in which it does:
  /// inner ones first. Where the root is not among them, it may be added after.
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
