#pragma once

/// The node at the end of every path: hands a leaf's gradient to the leaf's sink. For autograd's
/// own .cc files.

#include <memory>

#include "tessera/autograd/graph.h"
#include "tessera/autograd/variable_impl.h"

namespace tessera::detail {

class LeafNode final : public Node {
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
