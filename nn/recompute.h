#pragma once

/// Memory for time, as a property of a module: its forward keeps its arguments only, and runs again
/// during backward; see autograd/recompute.h.
///
///     for (auto& block : blocks) nn::recompute(block);
///
/// Names, parameters and state dict stay as they are. The module's own hooks run once, around the
/// first forward; those of modules inside it run again with the second, which backward calls under
/// the autocast and the random keys of the first, so train() and eval() are not called in between.
/// Values and gradients keep their bits.
///
/// Calls throw StateError where an argument is passed by std::ref, or cannot be copied: the second
/// forward would find it changed. A forward without a result is not recomputed. A backward after
/// the module is gone throws StateError.

#include "tessera/nn/module.h"

namespace tessera::nn {

/// From the next call on. `on` false: an ordinary module again.
inline void recompute(Module& module, bool on = true) { module.set_recomputed(on); }

}  // namespace tessera::nn
