#pragma once

// What the tests of layers share.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {

inline Variable random_input(const Shape& shape, std::uint64_t seed, bool requires_grad = false) {
  const Tensor x = Tensor::empty(shape, {.dtype = DType::kF64});
  random::fill_normal(x, random::named_key(seed, "input"), random::whole(shape), 0, 1);
  return Variable(x, requires_grad);
}

// The derivatives of a layer by x and by its parameters, against central differences: "" or what
// differs. All is f64.
template <class L>
std::string check_gradients(L& layer, const Variable& x) {
  const Variable leaf(x.tensor(), true);
  const GradCheckResult by_input =
      grad_check([&](const std::vector<Variable>& in) { return layer(in[0]); }, {leaf});
  if (!by_input) return by_input.message;
  const GradCheckResult by_parameters = parameter_grad_check(layer, [&] { return layer(x); });
  return by_parameters ? "" : by_parameters.message;
}

// An L of 16 bits gives what one of f32 with the same parameters gives, rounded once, but for
// `atol` and the rtol of the dtype; "" or what differs.
template <class L>
std::string check_16_bits(typename L::Options options, const Variable& x, double atol = 1e-5) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    options.dtype = dtype;
    L half(options);
    options.dtype = DType::kF32;
    L wide(options);
    nn::initialize(half);
    nn::initialize(wide);
    for (std::size_t i = 0; i < half.parameters().size(); ++i)
      copy_(wide.parameters()[i].local().tensor(), half.parameters()[i].local().tensor());
    const Tensor in = cast(x.tensor(), dtype);
    const Variable y = half(Variable(in)), z = wide(Variable(cast(in, DType::kF32)));
    if (y.dtype() != dtype) return fmt::format("the result is {}", dtype_name(y.dtype()));
    const Tolerance tolerance{default_tolerance(dtype).rtol, atol};
    const CloseResult close = all_close(y.tensor(), cast(z.tensor(), dtype), tolerance);
    if (!close) return close.message;
  }
  return "";
}

}  // namespace tessera::testing
