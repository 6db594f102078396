#include "tessera/autograd/variable.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string_view>

#include "tessera/autograd/variable_impl.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

Variable::Impl& checked(const std::shared_ptr<Variable::Impl>& impl, const char* where) {
  TESSERA_CHECK_AS(StateError, impl != nullptr, where,
                   "the variable is undefined; give it a tensor first");
  return *impl;
}

// The leaf's state, made when there is none.
detail::LeafState& leaf_of(const std::shared_ptr<Variable::Impl>& impl, const char* where) {
  Variable::Impl& checked_impl = checked(impl, where);
  TESSERA_CHECK_AS(StateError, checked_impl.edge.node == nullptr, where,
                   "the variable is the result of \"{}\"; only leaves allow this: detach() it",
                   checked_impl.edge.node->name());
  return checked_impl.leaf_state();
}

void check_can_require_grad(const Tensor& tensor, const char* where) {
  TESSERA_CHECK(!tensor.defined() || is_floating(tensor.dtype()), where,
                "dtype {} cannot have a gradient; cast to a floating dtype",
                dtype_name(tensor.dtype()));
}

void check_fits(const Tensor& gradient, const Tensor& tensor, const char* where) {
  TESSERA_CHECK(gradient.shape() == tensor.shape() && gradient.device() == tensor.device(), where,
                "a gradient of shape {} on {} does not fit a leaf of shape {} on {}; drop it or "
                "make both equal",
                gradient.shape().str(), gradient.device().str(), tensor.shape().str(),
                tensor.device().str());
}

}  // namespace

Variable::Variable(Tensor tensor, bool requires_grad)
    : impl_(std::make_shared<Impl>(std::move(tensor))) {
  if (requires_grad) set_requires_grad(true);
}

Variable make_output(Tensor tensor, std::shared_ptr<GraphNode> node, int i) {
  return Variable(std::make_shared<Variable::Impl>(
      std::move(tensor), GradientEdge{.node = std::move(node), .output_nr = i}));
}

const Tensor& Variable::tensor() const { return checked(impl_, "variable.tensor").tensor; }

std::string Variable::str() const {
  if (!defined() || !impl_->tensor.defined()) return "variable, undefined";
  std::string history;
  if (impl_->edge.node != nullptr) {
    history = fmt::format(", from \"{}\"", impl_->edge.node->name());
  } else if (requires_grad()) {
    history = ", requires grad";
  }
  constexpr std::string_view kTensor = "tensor";  // the first word of a tensor's text
  const std::string text = impl_->tensor.str().substr(kTensor.size());
  const std::size_t line = std::min(text.find('\n'), text.size());
  return "variable" + text.substr(0, line) + history + text.substr(line);
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  return out << variable.str();
}

bool Variable::is_leaf() const { return !impl_ || impl_->edge.node == nullptr; }

bool Variable::requires_grad() const {
  if (!impl_) return false;
  return impl_->edge.node != nullptr || (impl_->leaf && impl_->leaf->requires_grad);
}

void Variable::set_requires_grad(bool value) {
  detail::LeafState& leaf = leaf_of(impl_, "variable.set_requires_grad");
  if (value) check_can_require_grad(impl_->tensor, "variable.set_requires_grad");
  leaf.requires_grad = value;
}

Tensor Variable::grad() const {
  const Impl& impl = checked(impl_, "variable.grad");
  return impl.leaf && !impl.leaf->sink ? impl.leaf->own_sink.gradient : Tensor();
}

void Variable::set_grad(Tensor grad) {
  detail::LeafState& leaf = leaf_of(impl_, "variable.set_grad");
  if (grad.defined()) {
    TESSERA_CHECK_AS(StateError, leaf.sink == nullptr, "variable.set_grad",
                     "another sink collects this leaf's gradient; set it there");
    TESSERA_CHECK_AS(StateError, impl_->tensor.defined(), "variable.set_grad",
                     "the leaf has no tensor yet; bind one first");
    check_fits(grad, impl_->tensor, "variable.set_grad");
  }
  leaf.own_sink.gradient = std::move(grad);
}

Variable Variable::detach() const { return Variable(tensor()); }

HookHandle Variable::register_hook(std::function<Variable(const Variable&)> hook) {
  Impl& impl = checked(impl_, "variable.register_hook");
  if (impl.edge.node) return impl.edge.node->add_output_hook(impl.edge.output_nr, std::move(hook));
  return impl.leaf_state().gradient_hooks.add(std::move(hook));
}

HookHandle Variable::register_post_accumulate_hook(std::function<void(const Variable&)> hook) {
  detail::LeafState& leaf = leaf_of(impl_, "variable.register_post_accumulate_hook");
  return leaf.post_accumulate_hooks.add(std::move(hook));
}

bool Variable::has_post_accumulate_hooks() const {
  return !leaf_of(impl_, "variable.has_post_accumulate_hooks").post_accumulate_hooks.empty();
}

void Variable::run_post_accumulate_hooks() const {
  const detail::LeafState& leaf = leaf_of(impl_, "variable.run_post_accumulate_hooks");
  for (const auto& hook : leaf.post_accumulate_hooks.snapshot()) hook(*this);
}

GradientEdge Variable::gradient_edge() const {
  const Impl& impl = checked(impl_, "variable.gradient_edge");
  if (impl.edge.node) return impl.edge;
  if (!impl.leaf || !impl.leaf->requires_grad) return {};
  std::shared_ptr<GraphNode> node = impl.leaf->node.lock();
  if (!node) {
    node = make_node<detail::LeafNode>(impl_);
    impl.leaf->node = node;
  }
  return {.node = std::move(node), .output_nr = 0};
}

void Variable::bind(Tensor tensor) {
  detail::LeafState& leaf = leaf_of(impl_, "variable.bind");
  if (leaf.requires_grad) check_can_require_grad(tensor, "variable.bind");
  if (leaf.own_sink.gradient.defined() && tensor.defined())
    check_fits(leaf.own_sink.gradient, tensor, "variable.bind");
  impl_->set_tensor(std::move(tensor));
}

void Variable::set_gradient_sink(std::shared_ptr<GradientSink> sink) {
  leaf_of(impl_, "variable.set_gradient_sink").sink = std::move(sink);
}

}  // namespace tessera

namespace tessera::detail {

void OwnSink::allocate() {
  const std::string& name = leaf_.storage().name();
  gradient = Tensor::empty_named(leaf_.shape(), leaf_.options(), MemoryCategory::kGradient,
                                 name.empty() ? name : name + ".grad");
}

std::optional<GradientSlot> OwnSink::take_slot(DType storable) {
  if (!gradient.defined()) {
    if (storable != leaf_.dtype()) return std::nullopt;
    allocate();
    return GradientSlot{.tensor = gradient, .beta = 0};
  }
  // set_grad() may have put in anything of the right shape.
  if (storable != gradient.dtype() || !gradient.is_contiguous()) return std::nullopt;
  return GradientSlot{.tensor = gradient, .beta = 1};
}

void OwnSink::accumulate(const Tensor& arrived) {
  const bool first = !gradient.defined();
  if (first) allocate();
  axpby_(gradient, arrived, {.alpha = 1, .beta = first ? 0.0 : 1.0});
}

LeafNode::LeafNode(std::shared_ptr<Variable::Impl> leaf)
    : GraphNode("accumulate", {&leaf->tensor, 1}, std::span<const Variable>()),
      leaf_(std::move(leaf)) {}

OutputInfo LeafNode::output_info(int /*i*/) const {
  // Not what the base remembers: the tensor may have been bound since.
  return {.shape = leaf_->tensor.shape(), .device = leaf_->tensor.device()};
}

void LeafNode::run_output_hooks(Gradients& output_gradients) {
  Variable& gradient = output_gradients.front();
  if (!gradient.defined()) return;
  for (const auto& hook : leaf_->leaf_state().gradient_hooks.snapshot())
    run_gradient_hook(hook, gradient, name());
}

std::optional<GradientSlot> LeafNode::offer_slot(DType storable) {
  LeafState& state = leaf_->leaf_state();
  if (!state.gradient_hooks.empty()) return std::nullopt;
  return state.active_sink().take_slot(storable);
}

Gradients LeafNode::apply(const Gradients& output_gradients, const BackwardContext& context) {
  const Variable& gradient = output_gradients.front();
  LeafState& state = leaf_->leaf_state();
  if (gradient.defined()) state.active_sink().accumulate(gradient.tensor());
  if (gradient.defined() || context.slot_was_taken()) {
    state.active_sink().complete();
    Variable(leaf_).run_post_accumulate_hooks();
  }
  return {};
}

}  // namespace tessera::detail
