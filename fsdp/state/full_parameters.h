#pragma once

/// Whole parameters for a while: to look at them, or to change them.
///
///     {
///       FullParameters full(model);                      // collective: gathers
///       for (auto& [name, p] : model.named_parameters()) print(name, p.value().tensor());
///       mul_(model.get_parameter("head.weight").value().tensor(), 0.5);
///     }                                                  // each rank keeps its part of the change
///
/// While the guard lives, value() of every sharded or replicated parameter of the module is the
/// whole value in the stored dtype, whatever the module computes in, in memory of its own
/// (MemoryCategory::kGathered) beside local(); its state is kFull and it needs no gradient. Of a
/// parameter that tensor parallelism cut, value() is the whole of this rank's part, as it is in
/// forward.
///
/// With `writeback`, values that were written go back when the guard closes: each rank keeps its
/// own part of its own value in local(), so all ranks make the same changes. A value that was not
/// written leaves local() alone, so a guard that only looks may stand between forward and backward.
/// Without it changes are lost. Afterwards everything is as before: what was gathered between
/// forward and backward still is.
///
/// Guards nest. What an outer guard holds, the inner one shares: it gathers nothing, sees the outer
/// one's changes, and on closing writes back if it is to, and leaves the value there.
///
/// In the guard only modules without a state of their own run; sharded ones throw StateError, and
/// their groups are not unsharded or resharded by hand. Collective: all ranks of the model make and
/// close guards alike, also where an exception closes it. Used by the thread of its rank.

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
  /// Only on ranks that stand first along all axes that split or replicated the parameter (without
  /// tensor parallelism: rank 0 of the mesh). On the others value() is not readable; with writeback
  /// they get their part of the first rank's, one parameter at a time.
  bool rank0_only = false;
  bool offload = false;    ///< values and gradients on the CPU
  bool gradients = false;  ///< whole gradients too: see gradient()
};

class FullParameters {
 public:
  /// Throws StateError inside a forward or backward of a tree that the parameters belong to, while
  /// gradients wait to be reduced, before parameters have elements, and inside a guard that holds
  /// some of them with another rank0_only or offload; then nothing has changed.
  explicit FullParameters(nn::Module& module, const FullParametersOptions& options = {});
  /// As close(), but what that would throw is lost: the values may then not have gone back.
  ~FullParameters();
  FullParameters(const FullParameters&) = delete;
  FullParameters& operator=(const FullParameters&) = delete;

  /// The whole gradient, of value()'s shape and grad()'s dtype; undefined where there is none, and
  /// on ranks without the value. What is written to it goes back into grad() with `writeback`. Of a
  /// parameter that is not sharded, grad() itself. Throws StateError for a guard without
  /// `gradients`, or a closed one; InvalidArgument for a sharded parameter that it does not hold.
  Tensor gradient(const nn::Parameter& parameter) const;

  /// Ends the guard early, and throws what writing back throws: StateError where a gradient was
  /// written and grad() dropped since, and what the collectives throw. The values are gone all the
  /// same. A second time does nothing.
  void close();

 private:
  struct Held;

  void check_shares(const nn::Parameter& parameter) const;
  void hold(const nn::Parameter& parameter);

  FullParametersOptions options_;
  std::vector<std::shared_ptr<Held>> held_;
  std::map<const void*, std::size_t> by_id_;
  std::vector<HookHandle> hooks_;  ///< keep sharded modules from running
  bool open_ = true;
};

}  // namespace tessera::fsdp
