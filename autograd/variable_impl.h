#pragma once

/// What a Variable handle points to. For autograd's own .cc files.

#include <memory>
#include <span>

#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable.h"

namespace tessera::detail {

/// The node at the end of every path: hands a leaf's gradient to the leaf's sink. For autograd's
/// own .cc files.
class LeafNode final : public GraphNode {
 public:
  explicit LeafNode(std::shared_ptr<Variable::Impl> leaf);

  OutputInfo output_info(int i) const override;
  void run_output_hooks(Gradients& output_gradients) override;
  std::optional<GradientSlot> offer_slot(DType storable) override;
  bool is_leaf_node() const override { return true; }

 protected:
  Gradients apply(const Gradients& output_gradients, const BackwardContext& context) override;
  bool drop_derivative() override { return false; }

 private:
  std::shared_ptr<Variable::Impl> leaf_;
};

}  // namespace tessera::detail

namespace tessera {

namespace detail {

class Recipe;

/// The sink of a leaf that has no other: the gradient stays with the leaf, in the leaf's dtype.
class OwnSink final : public GradientSink {
 public:
  explicit OwnSink(const Tensor& leaf) : leaf_(leaf) {}
  std::optional<GradientSlot> take_slot(DType storable) override;
  void accumulate(const Tensor& gradient) override;

  Tensor gradient;

 private:
  void allocate();

  const Tensor& leaf_;  // the tensor in the Impl that owns this sink
};

/// What only leaves have; made when first needed, since most leaves are constants.
struct LeafState {
  explicit LeafState(const Tensor& leaf) : own_sink(leaf) {}
  GradientSink& active_sink() { return sink ? *sink : own_sink; }

  bool requires_grad = false;
  OwnSink own_sink;
  std::shared_ptr<GradientSink> sink;  // null: own_sink
  std::weak_ptr<GraphNode> node;       // edges own it, so that a leaf does not own itself
  HookList<Variable(const Variable&)> gradient_hooks;
  HookList<void(const Variable&)> post_accumulate_hooks;
};

}  // namespace detail

struct Variable::Impl {
  explicit Impl(Tensor value) : tensor(std::move(value)) { count_handle(1); }
  Impl(Tensor value, GradientEdge source) : tensor(std::move(value)), edge(std::move(source)) {
    count_handle(1);
  }
  ~Impl() { count_handle(-1); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  detail::LeafState& leaf_state() {
    if (!leaf) leaf = std::make_unique<detail::LeafState>(tensor);
    return *leaf;
  }

  /// Every variable counts as a handle of its tensor's view family, for operations in place.
  void count_handle(int change) const {
    if (tensor.defined()) tensor.add_family_handles(change);
  }
  void set_tensor(Tensor value) {
    count_handle(-1);
    tensor = std::move(value);
    count_handle(1);
  }

  Tensor tensor;      // changed by set_tensor alone
  GradientEdge edge;  // null node: a leaf
  std::unique_ptr<detail::LeafState> leaf;
  std::shared_ptr<detail::Recipe> recipe;  // how to compute the tensor again: see set_recipe
};

/// Output `i` of a node as a variable.
Variable make_output(Tensor tensor, std::shared_ptr<GraphNode> node, int i);

}  // namespace tessera
