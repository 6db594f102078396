#include "tessera/tensor/ops_elementwise.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops.h"
#include "tessera/autograd/ops_internal.h"
#include "tessera/tensor/check.h"

namespace tessera {

using detail::save_if;

Variable add(const Variable& a, const Variable& b) {
  return record_twice("add", add(a.tensor(), b.tensor()), {a, b},
                      [a_shape = a.shape(), b_shape = b.shape()](const Variable& dy,
                                                                 const BackwardContext& context) {
                        Gradients gradients(2);
                        if (context.needs(0)) gradients[0] = sum_to_shape(dy, a_shape);
                        if (context.needs(1)) gradients[1] = sum_to_shape(dy, b_shape);
                        return gradients;
                      });
}

Variable sub(const Variable& a, const Variable& b) {
  return record_twice("sub", sub(a.tensor(), b.tensor()), {a, b},
                      [a_shape = a.shape(), b_shape = b.shape()](const Variable& dy,
                                                                 const BackwardContext& context) {
                        Gradients gradients(2);
                        if (context.needs(0)) gradients[0] = sum_to_shape(dy, a_shape);
                        if (context.needs(1)) gradients[1] = neg(sum_to_shape(dy, b_shape));
                        return gradients;
                      });
}

Variable mul(const Variable& a, const Variable& b) {
  return record_twice(
      "mul", mul(a.tensor(), b.tensor()), {a, b},
      [a_shape = a.shape(), b_shape = b.shape(), a = save_if(b.requires_grad(), a, "mul"),
       b = save_if(a.requires_grad(), b, "mul")](const Variable& dy,
                                                 const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = sum_to_shape(mul(dy, b.unpack()), a_shape);
        if (context.needs(1)) gradients[1] = sum_to_shape(mul(dy, a.unpack()), b_shape);
        return gradients;
      });
}

Variable div(const Variable& a, const Variable& b) {
  return record_twice(
      "div", div(a.tensor(), b.tensor()), {a, b},
      [a_shape = a.shape(), b_shape = b.shape(), a = save_if(b.requires_grad(), a, "div"),
       b = SavedVariable(b, "div")](const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        const Variable da = div(dy, b.unpack());
        if (context.needs(0)) gradients[0] = sum_to_shape(da, a_shape);
        if (context.needs(1)) {
          const Variable db = mul(da, div(a.unpack(), b.unpack()));
          gradients[1] = neg(sum_to_shape(db, b_shape));
        }
        return gradients;
      });
}

Variable add(const Variable& a, double b) {
  return record_twice("add", add(a.tensor(), b), {a},
                      [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
}

Variable mul(const Variable& a, double b) {
  return record_twice(
      "mul", mul(a.tensor(), b), {a},
      [b](const Variable& dy, const BackwardContext&) { return Gradients{mul(dy, b)}; });
}

Variable neg(const Variable& x) {
  return record_twice("neg", neg(x.tensor()), {x}, [](const Variable& dy, const BackwardContext&) {
    return Gradients{neg(dy)};
  });
}

// y' = y, so the result is kept and not the operand: tanh and sqrt likewise.
Variable exp(const Variable& x) {
  const Tensor y = exp(x.tensor());
  return record_twice("exp", y, {x},
                      [y = Saved(y, "exp")](const Variable& dy, const BackwardContext& context) {
                        return Gradients{mul(dy, context.output(0, y.unpack()))};
                      });
}

Variable log(const Variable& x) {
  return record_twice("log", log(x.tensor()), {x},
                      [x = SavedVariable(x, "log")](const Variable& dy, const BackwardContext&) {
                        return Gradients{div(dy, x.unpack())};
                      });
}

Variable sqrt(const Variable& x) {
  const Tensor y = sqrt(x.tensor());
  return record_twice("sqrt", y, {x},
                      [y = Saved(y, "sqrt")](const Variable& dy, const BackwardContext& context) {
                        return Gradients{div(mul(dy, 0.5), context.output(0, y.unpack()))};
                      });
}

Variable square(const Variable& x) {
  return record_twice("square", square(x.tensor()), {x},
                      [x = SavedVariable(x, "square")](const Variable& dy, const BackwardContext&) {
                        return Gradients{mul(mul(dy, 2), x.unpack())};
                      });
}

Variable tanh(const Variable& x) {
  const Tensor y = tanh(x.tensor());
  return record_twice("tanh", y, {x},
                      [y = Saved(y, "tanh")](const Variable& dy, const BackwardContext& context) {
                        const Variable slope = add(neg(square(context.output(0, y.unpack()))), 1);
                        return Gradients{mul(dy, slope)};
                      });
}

// The result is positive exactly where the operand is; keeping it lets the operand go.
Variable relu(const Variable& x) {
  const Tensor y = relu(x.tensor());
  return record("relu", y, {x}, [y = Saved(y, "relu")](const Tensor& dy, const BackwardContext&) {
    return std::vector<Tensor>{relu_backward(dy, y.unpack())};
  });
}

Variable gelu(const Variable& x) {
  return record("gelu", gelu(x.tensor()), {x},
                [x = Saved(x, "gelu")](const Tensor& dy, const BackwardContext&) {
                  return std::vector<Tensor>{gelu_backward(dy, x.unpack())};
                });
}

Variable cast(const Variable& x, DType dtype) {
  TESSERA_CHECK(is_floating(dtype), "cast", "{} carries no gradient; cast the tensor instead",
                dtype_name(dtype));
  if (dtype == x.dtype()) return x;
  return record_twice("cast", cast(x.tensor(), dtype), {x},
                      [from = x.dtype()](const Variable& dy, const BackwardContext&) {
                        return Gradients{cast(dy, from)};
                      });
}

}  // namespace tessera
