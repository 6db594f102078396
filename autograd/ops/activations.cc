#include "tessera/autograd/ops/activations.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/nn.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/activations.h"
#include "tessera/tensor/ops/composed/activations.h"

namespace tessera {

Variable hardtanh(const Variable& x, double min_val, double max_val) {
  return composed::hardtanh("hardtanh", x, min_val, max_val);
}
Variable relu6(const Variable& x) { return composed::hardtanh("relu6", x, 0, 6); }
Variable leaky_relu(const Variable& x, double negative_slope) {
  return composed::leaky_relu(x, negative_slope);
}
Variable prelu(const Variable& x, const Variable& weight) { return composed::prelu(x, weight); }
Variable elu(const Variable& x, double alpha) { return composed::scaled_elu("elu", x, alpha, 1); }
Variable selu(const Variable& x) {
  return composed::scaled_elu("selu", x, composed::kSeluAlpha, composed::kSeluScale);
}
Variable celu(const Variable& x, double alpha) { return composed::celu(x, alpha); }
Variable mish(const Variable& x) { return composed::mish(x); }
Variable logsigmoid(const Variable& x) { return composed::logsigmoid(x); }
Variable hardsigmoid(const Variable& x) { return composed::hardsigmoid(x); }
Variable hardswish(const Variable& x) { return composed::hardswish(x); }
Variable softsign(const Variable& x) { return composed::softsign(x); }
Variable tanhshrink(const Variable& x) { return composed::tanhshrink(x); }
Variable hardshrink(const Variable& x, double lambd) { return composed::hardshrink(x, lambd); }
Variable softshrink(const Variable& x, double lambd) { return composed::softshrink(x, lambd); }
Variable threshold(const Variable& x, double threshold, double value) {
  return composed::threshold(x, threshold, value);
}
Variable glu(const Variable& x, int dim) { return composed::glu(x, dim); }
Variable swiglu(const Variable& gate, const Variable& up) {
  const Variable result =
      record_twice("swiglu", swiglu(gate.tensor(), up.tensor()), {gate, up},
                   [gate = SavedVariable(gate, "swiglu"), up = SavedVariable(up, "swiglu")](
                       const Variable& dy, const BackwardContext& context) {
                     const Variable &g = gate.unpack(), &u = up.unpack();
                     if (context.create_graph()) {
                       const Variable s = sigmoid(g), slope = add(s, mul(g, mul(s, sub(1, s))));
                       return Gradients{mul(mul(dy, u), slope), mul(dy, silu(g))};
                     }
                     SwigluGradients out = swiglu_backward(
                         dy.tensor(), g.tensor(), u.tensor(),
                         {.needs_gate = context.needs(0), .needs_up = context.needs(1)});
                     return Gradients{out.gate.defined() ? Variable(out.gate) : Variable(),
                                      out.up.defined() ? Variable(out.up) : Variable()};
                   });
  if (!result.requires_grad()) return result;
  set_recipe(result, [gate = SavedVariable(gate, "swiglu"), up = SavedVariable(up, "swiglu")] {
    return swiglu(gate.unpack().tensor(), up.unpack().tensor());
  });
  return result;
}
Variable softmin(const Variable& x, int dim) { return composed::softmin(x, dim); }

}  // namespace tessera
