#pragma once

/// Temporarily full parameters, to read or to change them (FSDP1's summon_full_params).
///
///     {
///       FullParameters full(model);                      // collective: gathers
///       for (auto& [name, p] : model.named_parameters()) print(name, p.value().tensor());
///       mul_(model.get_parameter("head.weight").value().tensor(), 0.5);
///     }                                                  // each rank keeps its part of the change
///
/// While the guard lives, value() of every sharded or replicated parameter of the module is the
/// full value in the stored dtype, whatever dtype the module computes in. It has its own memory
/// (MemoryCategory::kGathered) beside local(); its state is kFull and it requires no gradient. For
/// a tensor-parallel parameter, value() is all that this rank computes with, as in forward.
///
/// With `writeback`, values that were written are stored when the guard closes: each rank copies
/// its shard of its own value into local(), so all ranks must make the same changes. A value that
/// was not written leaves local() untouched; a guard that only reads may therefore be used between
/// forward and backward. Without `writeback` changes are lost. Closing restores the previous state:
/// values that were gathered between forward and backward are still gathered.
///
/// Guards nest. An inner guard shares the values that an outer one holds: it gathers nothing and
/// sees the outer guard's changes. When it closes it writes back if asked to, and the values stay.
///
/// Inside the guard only modules without a state may run. Sharded modules throw StateError, and
/// their groups must not be unsharded or resharded by hand. Collective: all ranks of the model
/// construct and close guards in the same order, also when an exception closes one. Only the rank's
/// own thread may use it.

#include <map>
#include <memory>
#include <vector>

#include "tessera/autograd/hooks.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

struct FullParametersOptions {
  /// false: without the parameters of sharded modules below this one.
  bool recurse = true;
  bool writeback = true;
  /// Only on ranks at coordinate 0 of every axis that shards or replicates the parameter (without
  /// tensor parallelism: rank 0 of the mesh). On other ranks value() is not readable. With
  /// writeback they receive their shard of rank 0's value, one parameter at a time.
  bool rank0_only = false;
  bool offload = false;    ///< values and gradients on the CPU
  bool gradients = false;  ///< also gather full gradients: see gradient()
};

class FullParameters {
 public:
  /// Throws StateError inside a forward or backward of the parameters' tree, while gradients wait
  /// to be reduced, if parameters are not materialized, and inside a guard that holds some of them
  /// with a different rank0_only or offload. Nothing has changed then.
  explicit FullParameters(nn::Module& module, const FullParametersOptions& options = {});
  /// Like close(), but ignores the errors that close() would throw: the values may not have been
  /// written back.
  ~FullParameters();
  FullParameters(const FullParameters&) = delete;
  FullParameters& operator=(const FullParameters&) = delete;

  /// The full gradient, with the shape of value() and the dtype of grad(). Undefined if there is
  /// none, and on ranks without the value. With `writeback`, changes to it are written back into
  /// grad(). For a parameter that is not sharded, grad() itself. Throws StateError if the guard is
  /// closed or was made without `gradients`; InvalidArgument for a sharded parameter that it does
  /// not hold.
  Tensor gradient(const nn::Parameter& parameter) const;

  /// Closes the guard early and throws the errors of writing back: StateError if a gradient was
  /// written and grad() was dropped meanwhile, and the errors of the collectives. The values are
  /// released in any case. A second call does nothing.
  void close();

 private:
  struct Held;

  void check_shares(const nn::Parameter& parameter) const;
  void hold(const nn::Parameter& parameter);

  FullParametersOptions options_;
  std::vector<std::shared_ptr<Held>> held_;
  std::map<const void*, std::size_t> by_id_;
  std::vector<HookHandle> hooks_;  ///< prevent sharded modules from running
  bool open_ = true;
};

}  // namespace tessera::fsdp
