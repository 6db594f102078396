#pragma once

/// Recording operations: how every differentiable operation, ours and the user's, enters the graph.
///
///     Variable gelu(const Variable& x) {
///       return record("gelu", gelu(x.tensor()), {x},
///                     [x = Saved(x, "gelu")](const Tensor& dy, const BackwardContext&) {
///                       return std::vector<Tensor>{gelu_backward(dy, x.unpack())};
///                     });
///     }
///
/// The lambda names exactly what backward keeps. Nothing is recorded while grad mode is off or when
/// no input requires a gradient: then the result is a plain variable and the lambda is dropped.
/// Undefined inputs are legal.

#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable.h"

namespace tessera {

/// A tensor kept for backward. unpack() throws StateError when it was overwritten since, naming the
/// operation that saved it.
class Saved {
 public:
  Saved(const Variable& variable, const char* operation) : Saved(variable.tensor(), operation) {}
  Saved(const Tensor& tensor, const char* operation)
      : tensor_(tensor), version_(tensor.version()), operation_(operation) {}
  const Tensor& unpack() const;

 private:
  Tensor tensor_;
  std::uint64_t version_;
  const char* operation_;
};

/// The same with the variable's history, for derivatives that are differentiable again. Never for
/// the operation's own output: see BackwardContext::output.
class SavedVariable {
 public:
  SavedVariable() = default;  ///< nothing saved: for what no derivative will ask
  SavedVariable(const Variable& variable, const char* operation);
  /// Throws as Saved::unpack; StateError where nothing was saved.
  const Variable& unpack() const;

 private:
  Variable variable_;
  std::uint64_t version_ = 0;
  const char* operation_ = "";
};

/// A derivative in terms of tensors: quick, but not differentiable again; backward with
/// create_graph throws StateError. It is called only when the output received a gradient.
using TensorBackward =
    std::function<std::vector<Tensor>(const Tensor& output_gradient, const BackwardContext&)>;

namespace detail {
bool is_recording(std::span<const Variable> inputs);
Variable record_tensors(const char* name, Tensor output, std::span<const Variable> inputs,
                        TensorBackward backward);
Variable record_variables(const char* name, Tensor output, std::span<const Variable> inputs,
                          BackwardFunction backward);
}  // namespace detail

/// `backward` as TensorBackward.
template <class Backward>
Variable record(const char* name, Tensor output, std::initializer_list<Variable> inputs,
                Backward&& backward) {
  const std::span<const Variable> list(inputs.begin(), inputs.size());
  if (!detail::is_recording(list)) return Variable(std::move(output));
  return detail::record_tensors(name, std::move(output), list,
                                TensorBackward(std::forward<Backward>(backward)));
}

/// A derivative in terms of variables: differentiable again where it is made of differentiable
/// operations. `backward` takes (const Variable& output_gradient, const BackwardContext&), answers
/// Gradients, and is called only when the output received a gradient.
template <class Backward>
Variable record_twice(const char* name, Tensor output, std::initializer_list<Variable> inputs,
                      Backward&& backward) {
  const std::span<const Variable> list(inputs.begin(), inputs.size());
  if (!detail::is_recording(list)) return Variable(std::move(output));
  auto skip_undefined = [inputs = inputs.size(), backward = std::forward<Backward>(backward)](
                            const Gradients& gradients,
                            const BackwardContext& context) -> Gradients {
    if (!gradients.front().defined()) return Gradients(inputs);
    return backward(gradients.front(), context);
  };
  return detail::record_variables(name, std::move(output), list, std::move(skip_undefined));
}

/// The same with any number of outputs; the gradient of an output that nobody used arrives
/// undefined. Called whenever the node's turn comes, even when no output received a gradient.
std::vector<Variable> record_differentiable(const char* name, std::vector<Tensor> outputs,
                                            std::span<const Variable> inputs,
                                            BackwardFunction backward);

}  // namespace tessera
