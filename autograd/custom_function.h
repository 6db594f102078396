#pragma once

/// User-defined operations as classes, for cases that record() of function.h does not cover:
/// several results, results without gradients, options, state between forward and backward.
///
///     class Scale final : public CustomFunction {
///      public:
///       explicit Scale(double factor) : factor_(factor) {}
///       const char* name() const override { return "scale"; }
///       std::vector<Variable> forward(FunctionContext&, const std::vector<Variable>& in) override
///       {
///         return {mul(in[0], factor_)};
///       }
///       Gradients backward(FunctionContext&, const Gradients& dy) override {
///         return {mul(dy[0], factor_)};
///       }
///       bool is_twice_differentiable() const override { return true; }
///      private:
///       double factor_;
///     };
///     Variable y = apply_function<Scale>({x}, 3.0)[0];
///
/// forward runs without recording, backward with the pass's grad mode. The object lives until backward has freed what was saved; with retain_graph, backward
/// may be called again.

#include <memory>
#include <utility>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable.h"

namespace tessera {

/// What a CustomFunction's forward and backward may ask and tell.
class FunctionContext {
 public:
  /// In forward: keeps variables for backward: inputs, results or others. Saved ones have the
  /// history of inputs and results; a second call replaces the first. Do not keep inputs or results
  /// in members instead: backward would not notice that they were overwritten, and a result would
  /// own itself.
  void save_for_backward(std::vector<Variable> variables);
  /// In forward: these results get no gradient. Those that are not floating never do.
  void mark_non_differentiable(const Variable& result);

  /// In backward: what was saved, in that order. Throws StateError when it was overwritten since.
  std::vector<Variable> saved_variables() const;
  /// In backward: a graph of the gradient is recorded.
  bool create_graph() const;

  /// In both: false where the gradient of input `i` would be thrown away.
  bool needs_input_grad(int i) const;

 private:
  friend class FunctionCall;
  explicit FunctionContext(class FunctionCall& call) : call_(call) {}

  FunctionCall& call_;
  const BackwardContext* backward_ = nullptr;  // null in forward
};

class CustomFunction {
 public:
  virtual ~CustomFunction() = default;
  /// A literal.
  virtual const char* name() const = 0;
  /// The results: new ones, or inputs as they are. Inputs must not be written.
  virtual std::vector<Variable> forward(FunctionContext& context,
                                        const std::vector<Variable>& inputs) = 0;
  /// One gradient for each input, from one for each result; undefined: zero, or none needed. Called
  /// when at least one result received a gradient.
  virtual Gradients backward(FunctionContext& context, const Gradients& result_gradients) = 0;
  /// Override it to return true if backward is made of differentiable operations on
  /// `result_gradients` and on what saved_variables() returns. Only then can the gradient be
  /// differentiated again: a backward that leaves the graph would give second derivatives of 0, so
  /// for all others backward with create_graph throws StateError.
  virtual bool is_twice_differentiable() const { return false; }
};

namespace detail {
std::vector<Variable> run_function(std::unique_ptr<CustomFunction> function,
                                   const std::vector<Variable>& inputs);
}  // namespace detail

/// Makes an F of `args` and calls it. Undefined inputs are legal. Throws InvalidArgument when
/// forward marks a variable that it does not return.
template <class F, class... Args>
std::vector<Variable> apply_function(const std::vector<Variable>& inputs, Args&&... args) {
  return detail::run_function(std::make_unique<F>(std::forward<Args>(args)...), inputs);
}

}  // namespace tessera
