#pragma once

/// The backward pass.
///
/// Order: a node runs when the gradients of all its outputs are complete; among those that are
/// ready leaves come first, then the highest creation number. So everything recorded after a node
/// X, and all leaves it feeds, are finished before X runs. A leaf accumulates once per pass. Runs
/// on the calling thread and its current streams, and never reads a value on the host; neither
/// depth nor size of the graph uses the call stack. Saved tensors are freed as nodes finish, unless
/// retain_graph.
///
/// Re-entrant: a backward inside a node's derivative (recompute) is a nested task. Exceptions leave
/// no trace of the pass: in_backward() is false again, and queued callbacks are told of the
/// failure. Only gradients are left unfinished: drop those of all leaves before the next try.

#include <functional>
#include <span>
#include <vector>

#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable.h"

namespace tessera {

struct BackwardOptions {
  Tensor gradient = {};       ///< of the root; may be left out for roots of one element (then 1)
  bool retain_graph = false;  ///< keep saved tensors for another backward
  bool create_graph = false;  ///< record the derivative itself; implies retain_graph
  std::vector<Variable> inputs = {};  ///< when given, only these leaves accumulate
};

/// Adds d(root)/d(leaf) to every leaf. Throws StateError when the root has no graph,
/// InvalidArgument when `gradient` does not fit the root, or when one of options.inputs is not a
/// leaf that requires a gradient.
void backward(const Variable& root, const BackwardOptions& options = {});
/// Several roots in one pass; `gradients` as long as `roots` or empty; options.gradient must be
/// undefined.
void backward(std::span<const Variable> roots, std::span<const Tensor> gradients,
              const BackwardOptions& options = {});

/// d(sum of outputs)/d(inputs), without touching any leaf's gradient. Undefined where an input does
/// not contribute. With one output, options.gradient weighs its elements; options.inputs must be
/// empty. Inputs may be any variables that require a gradient, else InvalidArgument; hooks on them
/// run first.
std::vector<Variable> grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
                           const BackwardOptions& options = {});

/// True while this thread runs a backward pass (also a nested one), its queued callbacks included.
bool in_backward();

/// Runs `callback(failed)` once when the outermost pass of this thread ends: after its last node
/// with false, or after an exception with true. Callbacks run in order, with the grad mode of the
/// caller of backward; they may queue more. After a success they may throw: the remaining ones are
/// then told of a failure. Throws StateError outside a pass.
void queue_callback(std::function<void(bool failed)> callback);

}  // namespace tessera
