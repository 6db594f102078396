#include "tessera/autograd/graph.h"

#include <memory>
#include <optional>
#include <utility>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/variable_impl.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

thread_local std::uint64_t t_last_sequence = 0;
// Plain pointers, so that nodes owned by objects of static lifetime can still be destroyed at the
// thread's end.
thread_local GraphNode* t_dead = nullptr;
thread_local bool t_burying = false;

}  // namespace

struct GraphNode::Hooks {
  HookList<void(Gradients&)> outputs;
  HookList<void(Gradients&)> pre;
  HookList<void(const Gradients&)> post;
  // Like hooks of few nodes: the first in anomaly mode only, the second in timed traces.
  std::string recorded_where = {};
  std::shared_ptr<const ScopeName> scope = nullptr;
};

bool BackwardContext::needs(int i) const {
  const GraphNode* node = node_.inputs()[static_cast<std::size_t>(i)].node.get();
  return node != nullptr && pass_.needs(*node);
}

std::optional<GradientSlot> BackwardContext::slot(int i, DType storable) const {
  GraphNode* node = node_.inputs()[static_cast<std::size_t>(i)].node.get();
  if (node == nullptr || !node->is_leaf_node() || pass_.create_graph()) return std::nullopt;
  return pass_.take_slot(*node, storable);
}

Tensor BackwardContext::take_gradient(int i, DType dtype) const {
  if (!needs(i) || node_.has_post_hooks()) return {};
  return pass_.take_gradient(node_.inputs()[static_cast<std::size_t>(i)], dtype);
}

Variable BackwardContext::output(int i, const Tensor& saved) const {
  if (!create_graph()) return Variable(saved);
  return make_output(saved, pass_.handle(node_), i);
}

GraphNode::GraphNode(const char* name, std::span<const Tensor> outputs, const InputList& inputs)
    : name_(name), sequence_(++t_last_sequence), outputs_(outputs.size()), inputs_(inputs.size()) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined())
      outputs_.span()[i] = {.shape = outputs[i].shape(), .device = outputs[i].device()};
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) inputs_.span()[i] = inputs[i].gradient_edge();
  }
  const bool is_timed = active_timed_trace() != nullptr;
  if (!(detail::anomaly_mode() || is_timed) || inputs.size() == 0) [[likely]]
    return;
  if (is_timed) hooks().scope = current_scope();
  if (!detail::anomaly_mode()) return;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    detail::check_result(name, static_cast<int>(i), outputs[i]);
  hooks().recorded_where = current_scope_text();
}

GraphNode::~GraphNode() = default;

OutputInfo GraphNode::output_info(int i) const {
  return outputs_.span()[static_cast<std::size_t>(i)];
}

GraphNode::Hooks& GraphNode::hooks() {
  if (!hooks_) hooks_ = std::make_unique<Hooks>();
  return *hooks_;
}

std::string GraphNode::recorded_where() const {
  return hooks_ && !hooks_->recorded_where.empty() ? hooks_->recorded_where
                                                   : "outside anomaly mode";
}

HookHandle GraphNode::add_output_hook(int i, std::function<Variable(const Variable&)> hook) {
  return hooks().outputs.add(
      [i, name = name_, hook = std::move(hook)](Gradients& output_gradients) {
        Variable& gradient = output_gradients[static_cast<std::size_t>(i)];
        if (gradient.defined()) run_gradient_hook(hook, gradient, name);
      });
}

HookHandle GraphNode::add_pre_hook(std::function<void(Gradients&)> hook) {
  return hooks().pre.add(std::move(hook));
}

HookHandle GraphNode::add_post_hook(std::function<void(const Gradients&)> hook) {
  return hooks().post.add(std::move(hook));
}

void GraphNode::run_output_hooks(Gradients& output_gradients) {
  if (!hooks_) return;
  for (const auto& hook : hooks_->outputs.snapshot()) hook(output_gradients);
}

Gradients GraphNode::run(Gradients output_gradients, const BackwardContext& context) {
  TESSERA_CHECK_AS(StateError, !freed_, "backward",
                   "backward ran already through \"{}\" and freed what it had saved; pass "
                   "retain_graph to all but the last backward of this graph",
                   name_);
  // A timed trace shows the module that the node was recorded in.
  std::optional<ScopeRestore> scope;
  if (hooks_ && hooks_->scope && active_timed_trace() != nullptr) scope.emplace(hooks_->scope);
  const TracedPhase phase("autograd", name_, "node");
  if (hooks_) {
    for (const auto& hook : hooks_->pre.snapshot()) hook(output_gradients);
  }
  Gradients input_gradients = apply(output_gradients, context);
  TESSERA_CHECK_AS(StateError, input_gradients.size() == inputs_.size(), "backward",
                   "the derivative of \"{}\" returned {} gradients for {} inputs; return one for "
                   "each, undefined where there is none",
                   name_, input_gradients.size(), inputs_.size());
  if (hooks_) {
    for (const auto& hook : hooks_->post.snapshot()) hook(input_gradients);
  }
  return input_gradients;
}

bool GraphNode::has_post_hooks() const { return hooks_ && !hooks_->post.empty(); }

void GraphNode::free_saved() {
  if (drop_derivative()) freed_ = true;
}

std::optional<GradientSlot> GraphNode::offer_slot(DType /*storable*/) { return std::nullopt; }

void NodeDeleter::operator()(GraphNode* node) const noexcept {
  if (t_burying) {
    node->next_dead_ = std::exchange(t_dead, node);
    return;
  }
  t_burying = true;
  detail::NodeMemory* memory = node->memory_;
  node->~GraphNode();
  memory->drop_node_first();
  while (t_dead != nullptr) {
    GraphNode* next = std::exchange(t_dead, t_dead->next_dead_);
    memory = next->memory_;
    next->~GraphNode();
    memory->drop();
  }
  t_burying = false;
}

void run_gradient_hook(const std::function<Variable(const Variable&)>& hook, Variable& gradient,
                       const char* where) {
  Variable replacement = hook(gradient);
  if (!replacement.defined()) return;
  TESSERA_CHECK(
      replacement.shape() == gradient.shape() && replacement.device() == gradient.device(),
      "backward",
      "a gradient hook of \"{}\" returned a gradient of shape {} on {} for one of shape {} on {}; "
      "keep shape and device",
      where, replacement.shape().str(), replacement.device().str(), gradient.shape().str(),
      gradient.device().str());
  gradient = std::move(replacement);
}

}  // namespace tessera
