#include "tessera/autograd/in_place.h"

#include <utility>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/variable_impl.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/element_overlap.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::detail {

bool begin_in_place(const char* name, const Variable& x, const InputList& inputs) {
  const Tensor& tensor = x.tensor();
  TESSERA_CHECK(!elements_overlap(tensor.shape(), tensor.strides()), name,
                "elements of the tensor of shape {} with strides {} share memory; write to a copy",
                tensor.shape().str(), tensor.strides().str());
  const bool input_records = is_recording(inputs);  // asked first: a RecordingProbe wants to know
  if (!grad_enabled() || !(x.requires_grad() || input_records)) return false;
  TESSERA_CHECK(is_floating(x.dtype()), name,
                "an operand requires a gradient, which a tensor of {} cannot carry on; detach() it",
                dtype_name(x.dtype()));
  TESSERA_CHECK_AS(StateError, !(x.is_leaf() && x.requires_grad()), name,
                   "a leaf of shape {} that requires a gradient cannot be written while operations "
                   "are recorded; use the form that makes a new tensor, or write under NoGradGuard",
                   x.shape().str());
  const int others = tensor.family_handles() - 1;
  TESSERA_CHECK_AS(StateError, others == 0, name,
                   "{} other variables see the memory of this one, of shape {} (views of it, what "
                   "it is a view of, or detached), and their history would be wrong; use the form "
                   "that makes a new tensor",
                   others, x.shape().str());
  return true;
}

void move_history(const Variable& x, std::shared_ptr<GraphNode> node) {
  x.impl()->edge = {.node = std::move(node), .output_nr = 0};
}

Variable copy_of(const Variable& x) {
  GradientEdge edge = x.gradient_edge();
  Tensor copy = clone(x.tensor());
  if (edge.node == nullptr) return Variable(std::move(copy));
  return make_output(std::move(copy), std::move(edge.node), edge.output_nr);
}

}  // namespace tessera::detail
