#include "tessera/autograd/leaf_node.h"

#include "tessera/tensor/ops/elementwise.h"

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
    : Node("accumulate", {&leaf->tensor, 1}, std::span<const Variable>()), leaf_(std::move(leaf)) {}

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
