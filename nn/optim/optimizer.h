#pragma once

/// The base of optimizers: holds parameters and one set of state tensors for each.
///
///     backward(loss);
///     optimizer.step();
///     optimizer.zero_grad();
///
/// A step works on local() and grad() and so needs to know nothing of sharding: an optimizer may be
/// built before or after fully_shard, and before or after initialize. State is allocated at the
/// first step, in MemoryCategory::kOptimizer, for this rank's real rows only. Used by the thread of
/// its rank.

#include <map>
#include <string>
#include <vector>

#include "tessera/nn/parameter.h"

namespace tessera::nn::optim {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that is trainable and has a gradient; the others are left alone,
  /// state included.
  virtual void step() = 0;
  /// Drops every gradient. Throws StateError listing the groups in which unreduced gradients wait;
  /// then none is dropped.
  void zero_grad();

  /// Each once, tied ones too.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// A state tensor of a parameter, by its name in the optimizer's header ("momentum"); undefined
  /// before the first step.
  Tensor state(const Parameter& parameter, const std::string& name) const;

 protected:
  /// Throws InvalidArgument for an empty list.
  explicit Optimizer(const std::vector<Parameter>& parameters);

  struct StateTensor {
    Tensor tensor;  ///< local()'s shape, dtype and device
    bool is_new;    ///< its elements are arbitrary
  };
  /// Made when there is none. Throws StateError when the parameter was sharded since it was made.
  StateTensor state_for_update(const Parameter& parameter, const std::string& name);
  /// Those that step() updates, in order.
  std::vector<Parameter> parameters_to_update() const;

 private:
  std::vector<Parameter> parameters_;
  std::map<const void*, std::map<std::string, Tensor>> states_;  // by Parameter::id()
};

}  // namespace tessera::nn::optim
