#pragma once

/// Recording operations: how every differentiable operation, ours and the user's, enters the graph.
///
///     Variable gelu(const Variable& x) {
///       return record("gelu", gelu(x.tensor()), {x},
///                     [x = SavedTensor(x, "gelu")](const Tensor& dy, const BackwardContext&) {
///                       return std::vector<Tensor>{gelu_backward(dy, x.unpack())};
///                     });
///     }
///
/// The lambda names exactly what backward keeps. Nothing is recorded while grad mode is off or when
/// no input requires a gradient: then the result is a plain variable and the lambda is dropped.
/// Undefined inputs are legal.

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable.h"

namespace tessera {

/// A tensor kept for backward. unpack() throws StateError when it was overwritten since, naming the
/// operation that saved it and the one that overwrote it.
class SavedTensor {
 public:
  SavedTensor(const Variable& variable, const char* operation)
      : SavedTensor(variable.tensor(), operation) {}
  SavedTensor(const Tensor& tensor, const char* operation)
      : tensor_(tensor), version_(tensor.version()), operation_(operation) {}
  const Tensor& unpack() const;

 private:
  Tensor tensor_;
  std::uint64_t version_;
  const char* operation_;
};

namespace detail {
class Recipe;
}

/// The same with the variable's history, for derivatives that are differentiable again. Never for
/// the operation's own output: see BackwardContext::output.
///
/// A variable with a recipe (set_recipe) is not kept: unpack() computes it again if nothing else kept it.
class SavedVariable {
 public:
  SavedVariable() = default;  ///< nothing saved: no derivative will ask for it
  SavedVariable(const Variable& variable, const char* operation);
  bool saved() const { return variable_.defined() || recipe_ != nullptr; }
  /// Throws as SavedTensor::unpack; StateError where nothing was saved. The reference lives as long as this.
  const Variable& unpack() const;
  /// Drops the handle of a result with a recipe that unpack() got; references that it returned become invalid. The next unpack()
  /// computes the result again.
  void free_recomputed() const;
  /// True when this is all that still sees the tensor: no handle of the variable or of the tensor,
  /// no view, no other node, and no leaf, which its gradient's node holds. With
  /// BackwardContext::frees_saved() the derivative may then write over it.
  bool is_sole_owner() const;

 private:
  mutable Variable variable_;  // with a recipe: undefined until unpack()
  std::shared_ptr<detail::Recipe> recipe_;
  mutable std::uint64_t version_ = 0;
  const char* operation_ = "";
};

/// Gives `result` a recipe, if its operation is cheap and keeps its operands anyway, as an activation's does: operations that
/// save the result keep `again` in its place, so the memory of the result is free between forward and backward. `again` must
/// return the same bits in the same layout; it holds the operands as SavedVariable. Throws StateError if `result` has no history:
/// then no node keeps its operands.
void set_recipe(const Variable& result, std::function<Tensor()> again);

namespace detail {

/// Notes, while it lives and grad mode is off on its thread, every variable with a gradient that an
/// operation was given: what a function that runs without a graph would have recorded edges to.
/// They nest; the innermost notes, and hands on what it saw.
class RecordingProbe {
 public:
  RecordingProbe();
  ~RecordingProbe();
  RecordingProbe(const RecordingProbe&) = delete;
  RecordingProbe& operator=(const RecordingProbe&) = delete;

  void note(const InputList& inputs);
  /// One lives on this thread.
  static bool is_active();
  /// Each once, in the order in which they were first given.
  const std::vector<Variable>& noted() const { return noted_; }

 private:
  RecordingProbe* outer_;
  std::vector<Variable> noted_;
  std::unordered_set<const Variable::Impl*> seen_;
};

bool is_recording(const InputList& inputs);
/// The result of an operation that is not recorded.
inline Variable unrecorded(const char* name, Tensor output) {
  if (anomaly_mode()) [[unlikely]]
    check_result(name, 0, output);
  return Variable(std::move(output));
}
Variable output_of(std::shared_ptr<GraphNode> node, Tensor output);

/// A node of one output with a derivative in terms of tensors.
class TensorFunctionNode : public GraphNode {
 public:
  TensorFunctionNode(const char* name, const Tensor& output, const InputList& inputs)
      : GraphNode(name, {&output, 1}, inputs) {}

 protected:
  Gradients apply(const Gradients& output_gradients, const BackwardContext& context) final;
  virtual std::vector<Tensor> differentiate(const Tensor& output_gradient,
                                            const BackwardContext& context) = 0;
};

/// The same in terms of variables.
class VariableFunctionNode : public GraphNode {
 public:
  VariableFunctionNode(const char* name, const Tensor& output, const InputList& inputs)
      : GraphNode(name, {&output, 1}, inputs) {}

 protected:
  Gradients apply(const Gradients& output_gradients, const BackwardContext& context) final;
  virtual Gradients differentiate(const Variable& output_gradient,
                                  const BackwardContext& context) = 0;
};

/// Holds the derivative itself, with what it captured: no memory beside the node's.
template <class Backward>
class TensorClosureNode final : public TensorFunctionNode {
 public:
  TensorClosureNode(const char* name, const Tensor& output, const InputList& inputs,
                    Backward backward)
      : TensorFunctionNode(name, output, inputs), backward_(std::move(backward)) {}

 protected:
  std::vector<Tensor> differentiate(const Tensor& output_gradient,
                                    const BackwardContext& context) override {
    return (*backward_)(output_gradient, context);
  }
  bool drop_derivative() override {
    backward_.reset();
    return true;
  }

 private:
  std::optional<Backward> backward_;
};

template <class Backward>
class VariableClosureNode final : public VariableFunctionNode {
 public:
  VariableClosureNode(const char* name, const Tensor& output, const InputList& inputs,
                      Backward backward)
      : VariableFunctionNode(name, output, inputs), backward_(std::move(backward)) {}

 protected:
  Gradients differentiate(const Variable& output_gradient,
                          const BackwardContext& context) override {
    return (*backward_)(output_gradient, context);
  }
  bool drop_derivative() override {
    backward_.reset();
    return true;
  }

 private:
  std::optional<Backward> backward_;
};

}  // namespace detail

/// `backward` takes (const Tensor& output_gradient, const BackwardContext&) and returns one tensor
/// per input: fast, but not differentiable again; backward with create_graph throws StateError. It
/// is called only when the output received a gradient.
template <class Backward>
Variable record(const char* name, Tensor output, std::initializer_list<VariableRef> inputs,
                Backward&& backward) {
  const InputList list(std::span(inputs.begin(), inputs.size()));
  if (!detail::is_recording(list)) return detail::unrecorded(name, std::move(output));
  auto node = make_node<detail::TensorClosureNode<std::decay_t<Backward>>>(
      name, output, list, std::forward<Backward>(backward));
  return detail::output_of(std::move(node), std::move(output));
}

/// A derivative in terms of variables: differentiable again if it is made of differentiable
/// operations. `backward` takes (const Variable& output_gradient, const BackwardContext&), returns
/// Gradients, and is called only when the output received a gradient.
template <class Backward>
Variable record_twice(const char* name, Tensor output, std::initializer_list<VariableRef> inputs,
                      Backward&& backward) {
  const InputList list(std::span(inputs.begin(), inputs.size()));
  if (!detail::is_recording(list)) return detail::unrecorded(name, std::move(output));
  auto node = make_node<detail::VariableClosureNode<std::decay_t<Backward>>>(
      name, output, list, std::forward<Backward>(backward));
  return detail::output_of(std::move(node), std::move(output));
}

/// The same with any number of outputs; the gradient of an unused output is
/// undefined. Called whenever the node's turn comes, even when no output received a gradient.
std::vector<Variable> record_differentiable(const char* name, std::vector<Tensor> outputs,
                                            std::span<const Variable> inputs,
                                            BackwardFunction backward);

}  // namespace tessera
