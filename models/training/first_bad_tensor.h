#pragma once

/// Which tensor first held a number that is not finite: for the error of a run that diverged.

#include <functional>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/nn/module.h"

namespace tessera::models {

/// Looks, in this order, at the parameters' local(), at what every module takes and gives while
/// `forward` runs (once, without gradients, under hooks of this call only), and at the parameters'
/// gradients, and answers the first that holds an infinity or a NaN:
///
///     parameter "layers.0.attention.wq.weight" has 3 values that are not finite
///     the result of "layers.1.feed_forward" (FeedForward) has 12 values that are not finite
///     the gradient of "tok_embeddings.weight" has 1 value that is not finite
///
/// or "no tensor of this rank". A norm that is called with a residual adds it: a sum that overflows
/// is the norm's result. Buffers are not looked at by themselves: a bad one shows in what
/// its module gives. All ranks of `group` call it, and each is answered the first find, in the
/// order above and then of ranks, with " on rank N" behind. Collective.
std::string first_bad_tensor(nn::Module& module, const std::function<void()>& forward,
                             distributed::ProcessGroup& group);

}  // namespace tessera::models
