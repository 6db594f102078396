#include "tessera/autograd/custom_function.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "tessera/autograd/grad_mode.h"
#include "tessera/tensor/check.h"

namespace tessera {

// One call of a CustomFunction: what lives from forward to backward.
class FunctionCall : public std::enable_shared_from_this<FunctionCall> {
 public:
  FunctionCall(std::unique_ptr<CustomFunction> function, const std::vector<Variable>& inputs)
      : function_(std::move(function)),
        recording_(detail::is_recording(std::span<const Variable>(inputs))) {
    for (const Variable& input : inputs) needs_.push_back(recording_ && input.requires_grad());
  }

  std::vector<Variable> run(const std::vector<Variable>& inputs) {
    std::vector<Variable> results;
    {
      const NoGradGuard inside;
      FunctionContext context(*this);
      results = function_->forward(context, inputs);
    }
    check_marked(results);
    std::vector<Tensor> tensors;
    for (const Variable& result : results)
      tensors.push_back(result.defined() ? result.tensor() : Tensor());
    if (recording_) keep(inputs, results);
    to_save_.clear();
    std::vector<Variable> recorded = record_differentiable(
        function_->name(), std::move(tensors), inputs,
        [call = shared_from_this()](const Gradients& gradients, const BackwardContext& context) {
          return call->run_backward(gradients, context);
        });
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined()) recorded[i] = Variable();
      if (is_marked(results[i])) recorded[i] = Variable(results[i].tensor());
    }
    marked_.clear();
    return recorded;
  }

 private:
  friend class FunctionContext;

  struct Kept {
    SavedVariable variable;             // an input, or neither input nor result
    std::optional<SavedTensor> result;  // or a result, without history: the node would own itself
    int result_nr = -1;
  };

  static std::ptrdiff_t position(const Variable& variable, const std::vector<Variable>& in) {
    const auto found = std::find_if(in.begin(), in.end(), [&](const Variable& other) {
      return other.defined() && other.same_as(variable);
    });
    return found == in.end() ? -1 : found - in.begin();
  }

  bool is_marked(const Variable& result) const {
    return result.defined() && position(result, marked_) >= 0;
  }

  void check_marked(const std::vector<Variable>& results) const {
    for (const Variable& marked : marked_) {
      TESSERA_CHECK(position(marked, results) >= 0, function_->name(),
                    "mark_non_differentiable was given a variable that forward does not return; "
                    "mark one of its {} results",
                    results.size());
    }
  }

  void keep(const std::vector<Variable>& inputs, const std::vector<Variable>& results) {
    for (const Variable& variable : to_save_) {
      Kept entry;
      const bool with_history = variable.defined() && variable.tensor().defined() &&
                                is_floating(variable.dtype()) && !is_marked(variable) &&
                                position(variable, inputs) < 0;
      const std::ptrdiff_t nr = with_history ? position(variable, results) : -1;
      if (nr >= 0) {
        entry.result.emplace(variable, function_->name());
        entry.result_nr = static_cast<int>(nr);
      } else if (variable.defined()) {
        entry.variable = SavedVariable(variable, function_->name());
      }
      kept_.push_back(std::move(entry));
    }
  }

  Gradients run_backward(const Gradients& gradients, const BackwardContext& backward) {
    if (std::none_of(gradients.begin(), gradients.end(),
                     [](const Variable& gradient) { return gradient.defined(); }))
      return Gradients(needs_.size());
    TESSERA_CHECK_AS(
        StateError, !backward.create_graph() || function_->is_twice_differentiable(),
        function_->name(),
        "its gradient was asked for with create_graph, but this CustomFunction does not "
        "say that it can be differentiated twice; if its backward is made of "
        "differentiable operations on saved_variables(), override "
        "is_twice_differentiable() to return true");
    FunctionContext context(*this);
    context.backward_ = &backward;
    return function_->backward(context, gradients);
  }

  std::unique_ptr<CustomFunction> function_;
  bool recording_;
  std::vector<bool> needs_;
  std::vector<Variable> to_save_;
  std::vector<Variable> marked_;
  std::vector<Kept> kept_;
};

void FunctionContext::save_for_backward(std::vector<Variable> variables) {
  TESSERA_CHECK_AS(StateError, backward_ == nullptr, call_.function_->name(),
                   "save_for_backward was called in backward; call it in forward");
  call_.to_save_ = std::move(variables);
}

void FunctionContext::mark_non_differentiable(const Variable& result) {
  TESSERA_CHECK_AS(StateError, backward_ == nullptr, call_.function_->name(),
                   "mark_non_differentiable was called in backward; call it in forward");
  call_.marked_.push_back(result);
}

std::vector<Variable> FunctionContext::saved_variables() const {
  TESSERA_CHECK_AS(StateError, backward_ != nullptr, call_.function_->name(),
                   "saved_variables was called in forward; call it in backward");
  std::vector<Variable> out;
  for (const FunctionCall::Kept& entry : call_.kept_) {
    if (entry.result) {
      out.push_back(backward_->output(entry.result_nr, entry.result->unpack()));
    } else {
      out.push_back(entry.variable.saved() ? entry.variable.unpack() : Variable());
    }
  }
  return out;
}

bool FunctionContext::create_graph() const {
  return backward_ != nullptr && backward_->create_graph();
}

bool FunctionContext::needs_input_grad(int i) const {
  const auto nr = static_cast<std::size_t>(i);
  TESSERA_CHECK(i >= 0 && nr < call_.needs_.size(), call_.function_->name(),
                "needs_input_grad({}) of {} inputs; inputs count from 0", i, call_.needs_.size());
  return backward_ != nullptr ? backward_->needs(i) : call_.needs_[nr];
}

namespace detail {

std::vector<Variable> run_function(std::unique_ptr<CustomFunction> function,
                                   const std::vector<Variable>& inputs) {
  return std::make_shared<FunctionCall>(std::move(function), inputs)->run(inputs);
}

}  // namespace detail
}  // namespace tessera
