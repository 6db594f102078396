#pragma once

/// Operations in place: those that write over the elements of a variable that exists.
///
/// While something that takes part requires a gradient and grad mode is on, the variable's history
/// is moved onto the operation: whatever is computed from the variable afterwards goes through it.
/// What was computed from it before keeps the old history; if that saved the elements, its backward
/// throws StateError and names both operations (see SavedTensor).
///
/// Legal while recording, else StateError, before anything is written:
///   - results of operations, and leaves that require no gradient (those then have a history);
///   - not a leaf that requires a gradient: it would stop being one. Write to it under NoGradGuard.
///   - only where no other variable sees the same memory: a view, what it is a view of, a detach().
///     The other's elements would change and its history would not tell. Copies of the handle are
///     the same variable; a view whose base is gone is fine.
/// Where nothing is recorded, every variable may be written: the elements change, no history does.
/// A variable whose elements share memory (expand) is never written: InvalidArgument.

#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable.h"

namespace tessera {

namespace detail {
/// Throws where the operation is not legal; true when it is to be recorded.
bool begin_in_place(const char* name, const Variable& x, const InputList& inputs);
/// Makes x the output of a node, which was recorded with x's old history as its first input.
void move_history(const Variable& x, std::shared_ptr<GraphNode> node);
/// A copy of x's elements with x's history: what a derivative saves of a variable that is about to
/// be written.
Variable copy_of(const Variable& x);
}  // namespace detail

/// `write(const Tensor&)` writes over the elements of `x` and returns the derivative. It takes the
/// arguments of record_twice's derivative and returns one gradient for the old x and one for each
/// input. For its own result a derivative asks BackwardContext::output; it must not capture x.
///
///     void exp_(const Variable& x) {
///       record_in_place("exp_", x, {}, [](const Tensor& t) {
///         copy_(t, exp(t));
///         return [y = SavedTensor(t, "exp_")](const Variable& dy, const BackwardContext& context) {
///           return Gradients{mul(dy, context.output(0, y.unpack()))};
///         };
///       });
///     }
template <class Write>
void record_in_place(const char* name, const Variable& x, std::initializer_list<VariableRef> inputs,
                     Write&& write) {
  const bool recording =
      detail::begin_in_place(name, x, InputList(std::span(inputs.begin(), inputs.size())));
  auto backward = write(x.tensor());
  x.tensor().set_last_writer(name);
  if (!recording) {
    if (detail::anomaly_mode()) [[unlikely]]
      detail::check_result(name, 0, x.tensor());
    return;
  }
  std::vector<VariableRef> all = {x};
  all.insert(all.end(), inputs.begin(), inputs.end());
  detail::move_history(
      x, make_node<detail::VariableClosureNode<decltype(backward)>>(
             name, x.tensor(), InputList(std::span<const VariableRef>(all)), std::move(backward)));
}

}  // namespace tessera
