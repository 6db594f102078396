#pragma once

/// Finds the first tensor that holds a NaN or an infinity, for the error of a run that diverged.

#include <functional>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/nn/module.h"

namespace tessera::models {

/// Searches, in this order, the parameters' local(), the arguments and results of every module
/// while `forward` runs (once, without gradients, with hooks that are removed afterwards), and the
/// parameters' gradients. Returns a text for the first one that holds an infinity or a NaN:
///
///     parameter "layers.0.attention.wq.weight" has 3 values that are not finite
///     the result of "layers.1.feed_forward" (FeedForward) has 12 values that are not finite
///     the gradient of "tok_embeddings.weight" has 1 value that is not finite
///
/// or "no tensor of this rank". A norm that is called with a residual adds it, so a sum that
/// overflows is reported as the norm's result. Buffers are not searched: a bad buffer shows in its
/// module's results. Collective over `group`: every rank gets the first find, in the order above
/// and then in rank order, with the suffix " on rank N".
std::string first_bad_tensor(nn::Module& module, const std::function<void()>& forward,
                             distributed::ProcessGroup& group);

}  // namespace tessera::models
