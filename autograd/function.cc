#include "tessera/autograd/function.h"

#include <string>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/variable_impl.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/thread_state.h"

namespace tessera {
namespace {

std::string writer_text(const Tensor& tensor) {
  const char* writer = tensor.last_writer();
  return writer == nullptr ? "an operation without a name" : "\"" + std::string(writer) + "\"";
}

void check_not_overwritten(const Tensor& tensor, std::uint64_t version, const char* operation) {
  TESSERA_CHECK_AS(
      StateError, tensor.version() == version, "backward",
      "a tensor of shape {} that \"{}\" saved was overwritten since by {} (version {}, "
      "saved at {}); write to a copy, or after backward",
      tensor.shape().str(), operation, writer_text(tensor), tensor.version(), version);
}

// Of any number of outputs.
class FunctionNode final : public GraphNode {
 public:
  FunctionNode(const char* name, std::span<const Tensor> outputs, const InputList& inputs,
               BackwardFunction backward)
      : GraphNode(name, outputs, inputs), backward_(std::move(backward)) {}

 protected:
  Gradients apply(const Gradients& output_gradients, const BackwardContext& context) override {
    return backward_(output_gradients, context);
  }
  bool drop_derivative() override {
    backward_ = nullptr;
    return true;
  }

 private:
  BackwardFunction backward_;
};

// Not only the tensor's dtype: an operation may return indices beside values.
bool can_have_gradient(const Tensor& output) {
  return output.defined() && is_floating(output.dtype());
}

}  // namespace

const Tensor& SavedTensor::unpack() const {
  check_not_overwritten(tensor_, version_, operation_);
  return tensor_;
}

namespace detail {

// Shared by the result and by the nodes that saved it.
class Recipe {
 public:
  Recipe(const Variable& result, std::function<Tensor()> again)
      : result_(result.impl()),
        version_(result.tensor().version()),
        edge_(result.gradient_edge()),
        again_(std::move(again)) {}

  /// False once the result was written: it is no longer what the recipe computes.
  bool gives(const Tensor& result) const { return result.version() == version_; }
  /// The result; undefined if nothing keeps it.
  Variable kept() const { return Variable(result_.lock()); }
  /// Its elements and history in a new variable. `is_last`: no other node will ask.
  Variable compute(bool is_last) {
    if (!computed_.defined()) computed_ = make_output(again_(), edge_.node, edge_.output_nr);
    return is_last ? std::exchange(computed_, {}) : computed_;
  }

 private:
  std::weak_ptr<Variable::Impl> result_;
  std::uint64_t version_;
  GradientEdge edge_;
  std::function<Tensor()> again_;
  Variable computed_;  // while other nodes will ask for it
};

}  // namespace detail

void set_recipe(const Variable& result, std::function<Tensor()> again) {
  TESSERA_CHECK_AS(StateError, result.requires_grad() && !result.is_leaf(), "set_recipe",
                   "the result has no history: no node keeps what the recipe reads");
  result.impl()->recipe = std::make_shared<detail::Recipe>(result, std::move(again));
}

SavedVariable::SavedVariable(const Variable& variable, const char* operation)
    : version_(variable.tensor().version()), operation_(operation) {
  const std::shared_ptr<detail::Recipe>& recipe = variable.impl()->recipe;
  if (recipe != nullptr && recipe->gives(variable.tensor())) {
    recipe_ = recipe;
  } else {
    variable_ = variable;
  }
}

const Variable& SavedVariable::unpack() const {
  TESSERA_CHECK_AS(StateError, saved(), "backward",
                   "a derivative asks for a variable it did not save; save it where it is needed");
  if (!variable_.defined()) {
    variable_ = recipe_->kept();
    if (!variable_.defined()) {  // so only nodes that saved it hold the recipe
      variable_ = recipe_->compute(/*is_last=*/recipe_.use_count() == 1);
      version_ = variable_.tensor().version();
    }
  }
  check_not_overwritten(variable_.tensor(), version_, operation_);
  return variable_;
}

void SavedVariable::free_recomputed() const {
  if (recipe_ != nullptr) variable_ = {};
}

bool SavedVariable::is_sole_owner() const {
  return variable_.defined() && recipe_ == nullptr && !variable_.is_leaf() &&
         variable_.impl().use_count() == 1 && variable_.tensor().is_sole_owner();
}

namespace detail {

RecordingProbe::RecordingProbe() : outer_(std::exchange(thread_state().probe, this)) {}

RecordingProbe::~RecordingProbe() { thread_state().probe = outer_; }

bool RecordingProbe::is_active() { return thread_state().probe != nullptr; }

void RecordingProbe::note(const InputList& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Variable& input = inputs[i];
    if (input.requires_grad() && seen_.insert(input.impl().get()).second) noted_.push_back(input);
  }
  if (outer_ != nullptr) outer_->note(inputs);
}

bool is_recording(const InputList& inputs) {
  if (!grad_enabled()) {
    if (RecordingProbe* probe = thread_state().probe; probe != nullptr) [[unlikely]]
      probe->note(inputs);
    return false;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad()) return true;
  }
  return false;
}

Variable output_of(std::shared_ptr<GraphNode> node, Tensor output) {
  return make_output(std::move(output), std::move(node), 0);
}

Gradients TensorFunctionNode::apply(const Gradients& output_gradients,
                                    const BackwardContext& context) {
  const Variable& gradient = output_gradients.front();
  if (!gradient.defined()) return Gradients(inputs().size());
  TESSERA_CHECK_AS(StateError, !context.create_graph(), "backward",
                   "the derivative of \"{}\" cannot be differentiated again; backward without "
                   "create_graph, or record the operation with record_twice",
                   name());
  std::vector<Tensor> tensors = differentiate(gradient.tensor(), context);
  Gradients gradients(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) gradients[i] = Variable(std::move(tensors[i]));
  }
  return gradients;
}

Gradients VariableFunctionNode::apply(const Gradients& output_gradients,
                                      const BackwardContext& context) {
  const Variable& gradient = output_gradients.front();
  if (!gradient.defined()) return Gradients(inputs().size());
  return differentiate(gradient, context);
}

}  // namespace detail

std::vector<Variable> record_differentiable(const char* name, std::vector<Tensor> outputs,
                                            std::span<const Variable> inputs,
                                            BackwardFunction backward) {
  std::vector<Variable> variables;
  variables.reserve(outputs.size());
  if (!detail::is_recording(inputs)) {
    for (Tensor& output : outputs) {
      if (detail::anomaly_mode()) [[unlikely]]
        detail::check_result(name, static_cast<int>(variables.size()), output);
      variables.emplace_back(std::move(output));
    }
    return variables;
  }
  auto node = make_node<FunctionNode>(name, outputs, inputs, std::move(backward));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool with_history = can_have_gradient(outputs[i]);
    variables.push_back(with_history ? make_output(std::move(outputs[i]), node, static_cast<int>(i))
                                     : Variable(std::move(outputs[i])));
  }
  return variables;
}

}  // namespace tessera
