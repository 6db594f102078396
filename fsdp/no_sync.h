#pragma once

/// Gradient accumulation without communication, for a scope:
///
///     {
///       const fsdp::NoSync guard(model);
///       for (const Batch& batch : all_but_last) backward(loss_of(model, batch));   // no reduction
///     }
///     backward(loss_of(model, last));                   // reduces the sum of all, once
///
/// It is set_requires_gradient_sync(false) for all sharded modules at and below `model`, and at its
/// end what each of them had before. Only backward passes count: a forward may be outside. Unlike
/// FSDP1's no_sync the model need not be the root: modules outside the guard reduce as ever, so an
/// encoder may accumulate alone.
///
/// Gradients wait unreduced, whole and in the reduce dtype, until the next backward outside;
/// zero_grad() is refused in the meantime (Handle::discard_pending_gradients). Guards nest. The
/// model outlives the guard. Used by the thread of its rank.

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
