#pragma once

/// Gradient accumulation without communication, as a scope:
///
///     {
///       const fsdp::NoSync guard(model);
///       for (const Batch& batch : all_but_last) backward(loss_of(model, batch));   // no reduction
///     }
///     backward(loss_of(model, last));                   // reduces the sum of all, once
///
/// The guard calls set_requires_gradient_sync(false) on all sharded modules at and below `model`,
/// and its destructor restores the previous values. Only backward must run inside the scope;
/// forward may run outside. Unlike FSDP1's no_sync, `model` need not be the root: modules outside
/// it still reduce their gradients, so an encoder can accumulate alone.
///
/// Until the next backward outside the scope, gradients stay unreduced and unsharded, in the reduce
/// dtype; zero_grad() throws meanwhile (see Handle::discard_pending_gradients). Guards nest. The
/// model must outlive the guard. Only the rank's own thread may use it.

#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

class NoSync {
 public:
  /// Throws InvalidArgument for a model in which nothing is sharded.
  explicit NoSync(nn::Module& model);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  struct Before {
    Handle handle;
    bool requires_gradient_sync;
    bool requires_all_reduce;
  };
  std::vector<Before> before_;
};

}  // namespace tessera::fsdp
