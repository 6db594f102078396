#include "tessera/nn/optim/element_update.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {

void check_at_least_0(const char* where, const char* option, double value) {
  TESSERA_CHECK(value >= 0, where, "{} is {}; give one that is at least 0", option, value);
}

void check_betas(const char* where, const std::array<double, 2>& betas) {
  for (double beta : betas) {
    TESSERA_CHECK(beta >= 0 && beta < 1, where, "betas are {} and {}; they lie in [0, 1)", betas[0],
                  betas[1]);
  }
}

Tensor descent_gradient(const Parameter& parameter, bool maximize, double weight_decay) {
  const Tensor& local = parameter.local().tensor();
  const DType dtype = compute_dtype(local.dtype());
  Tensor g = parameter.grad();
  if (g.dtype() != dtype) g = cast(g, dtype);
  if (maximize) g = neg(g);
  if (weight_decay == 0) return g;
  return add(g, mul(local.dtype() == dtype ? local : cast(local, dtype), weight_decay));
}

void descend(const Parameter& parameter, const Tensor& direction, double factor, double shrink) {
  axpby_(parameter.local().tensor(), direction, {.alpha = -factor, .beta = 1 - shrink});
}

void check_whole(const char* where, const Parameter& parameter) {
  const ShardSpec& spec = parameter.spec();
  TESSERA_CHECK_AS(StateError, spec.is_whole(), where,
                   "\"{}\" of shape {} is sharded over {}, and this optimizer needs whole "
                   "parameters: leave it unsharded, or give it to an optimizer that works element "
                   "by element",
                   parameter.name(), spec.global_shape.str(), fmt::join(spec.sharded_axes, ", "));
}

}  // namespace tessera::nn::optim
