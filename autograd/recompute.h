#pragma once

/// Memory for time: a function's forward keeps its inputs only and runs again during backward.
///
///     Variable y = recompute([&](const Variable& x) { return block(x); }, x);
///
/// The first run records nothing. When backward reaches the result, the function runs again, with
/// recording, on the same inputs, and the same pass goes on through what it recorded. So gradients
/// have the bits they have without recompute, leaves accumulate once a pass, nodes keep the order
/// that engine.h promises, and grad() and create_graph work. Twice.
///
/// The function may use other variables than its inputs (parameters); they receive their gradients.
/// The second run has the thread's settings of the first: random keys (random::next_key), autocast,
/// anomaly mode, default device, memory category and the module path. Recomputations nest.
/// retain_graph keeps the inputs, and the function runs again for each backward.
///
/// The function must give the same each time, of the same inputs: StateError when the second run
/// returns another number of results, or another shape, dtype or device, when it uses a variable
/// whose gradient was complete already, and when an input or a parameter was overwritten since. An
/// exception of either run arrives unchanged and leaves the thread as it was. Hooks that a node of
/// the graph has by GraphNode::add_post_hook see no gradients at the node "recompute".

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/autograd/variable.h"

namespace tessera {

using RecomputedFunction = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

/// Undefined inputs and results are legal. While grad mode is off, just calls the function.
std::vector<Variable> recompute(RecomputedFunction function, const std::vector<Variable>& inputs);

/// For functions of one variable.
template <class Function>
requires std::is_invocable_r_v<Variable, Function&, const Variable&> Variable
recompute(Function function, const Variable& x) {
  RecomputedFunction listed =
      [function = std::move(function)](const std::vector<Variable>& inputs) mutable {
        return std::vector<Variable>{function(inputs.front())};
      };
  return recompute(std::move(listed), std::vector<Variable>{x}).front();
}

/// True inside the first run of a recomputed function: grad mode is off, yet a backward will come
/// through what is computed now. For hooks that prepare for it.
bool in_recomputed_forward();

}  // namespace tessera
