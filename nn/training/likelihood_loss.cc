#include "tessera/nn/training/likelihood_loss.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/training/loss_operands.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

constexpr double kLogTwoPi = 1.8378770664093454836;

// log(x), at least -100.
Tensor bounded_log(const Tensor& x) { return maximum(log(x), -100); }
Tensor bounded_log1m(const Tensor& x) { return maximum(log1p(neg(x)), -100); }

// t log(x) + (1 - t) log(1 - x), negated. A composition would multiply the slope 0 of the bound by the infinite one of
// the logarithm.
Variable bernoulli_nll(const Variable& x, const Variable& t) {
  constexpr const char* kName = "binary_cross_entropy";
  const Tensor& p = x.tensor();
  const Tensor yes = mul(t.tensor(), bounded_log(p)),
               no = mul(sub(1, t.tensor()), bounded_log1m(p));
  return record_twice(
      kName, neg(add(yes, no)), {x, t},
      [x = SavedVariable(x, kName), t = SavedVariable(t, kName)](const Variable& dy,
                                                                 const BackwardContext& context) {
        const Variable &p = x.unpack(), &target = t.unpack();
        Gradients out(2);
        if (context.needs(0)) {
          const Variable spread = maximum(mul(p, sub(1, p)), 1e-12);
          out[0] = mul(dy, div(sub(p, target), spread));
        }
        if (context.needs(1)) {
          // The same as constants: where the bound holds there is no slope.
          const Tensor& q = p.tensor();
          const Tensor inside = logical_and(gt(log(q), -100), gt(log1p(neg(q)), -100));
          const Variable safe = where(inside, p, 0.5);
          const Variable slope = sub(log1p(neg(safe)), log(safe));
          out[1] = mul(dy, where(inside, slope, Variable(sub(bounded_log1m(q), bounded_log(q)))));
        }
        return out;
      });
}

// The variance in the input's shape; its gradient passes where it is below eps too.
Variable variance_of(const LossOperands& x, const Variable& var, double eps) {
  constexpr const char* kWhere = "nn.gaussian_nll_loss";
  const Shape& shape = x.input.shape();
  const Shape fewer = shape.ndim() > 0 ? shape.without(shape.ndim() - 1) : shape;
  const Shape one = shape.ndim() > 0 ? shape.with(shape.ndim() - 1, 1) : shape;
  TESSERA_CHECK(is_floating(var.dtype()) &&
                    (var.shape() == shape || var.shape() == one || var.shape() == fewer),
                kWhere,
                "var is {} of shape {}; it is floating, of the input's shape {}, or that with a "
                "last extent of 1, or without the last dim",
                dtype_name(var.dtype()), var.shape().str(), shape.str());
  const bool same = var.shape() == shape;
  const Variable v = x.in_dtype(!same && var.shape() == fewer ? unsqueeze(var, -1) : var);
  const Variable raised = add(sub(v, Variable(v.tensor())), eps);
  return where(lt(v.tensor(), eps), raised, v);
}

}  // namespace

Variable binary_cross_entropy(const VariableOrTensor& input, const VariableOrTensor& target,
                              const BinaryCrossEntropyOptions& options) {
  constexpr const char* kWhere = "nn.binary_cross_entropy";
  const LossOperands x = operands_of(kWhere, input, target);
  Variable values = bernoulli_nll(x.input, x.target);
  if (options.weight.defined())
    values = mul(values, expanded_weight(kWhere, "weight", options.weight, x));
  return x.reduced(values, options.reduction);
}

Variable gaussian_nll_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                           const VariableOrTensor& var, const GaussianNllLossOptions& options) {
  constexpr const char* kWhere = "nn.gaussian_nll_loss";
  TESSERA_CHECK(options.eps > 0, kWhere, "eps is {}; it is above 0", options.eps);
  const LossOperands x = operands_of(kWhere, input, target);
  const Variable v = variance_of(x, var, options.eps);
  Variable values = mul(add(log(v), div(square(sub(x.input, x.target)), v)), 0.5);
  if (options.full) values = add(values, 0.5 * kLogTwoPi);
  return x.reduced(values, options.reduction);
}

Variable poisson_nll_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                          const PoissonNllLossOptions& options) {
  const LossOperands x = operands_of("nn.poisson_nll_loss", input, target);
  Variable values = options.log_input ? sub(exp(x.input), mul(x.target, x.input))
                                      : sub(x.input, mul(x.target, log(add(x.input, options.eps))));
  if (options.full) {
    const Tensor counts = gt(x.target.tensor(), 1);
    const Variable t = where(counts, x.target, 1);
    const Variable stirling = add(sub(mul(t, log(t)), t), mul(add(log(t), kLogTwoPi), 0.5));
    values = add(values, where(counts, stirling, 0));
  }
  return x.reduced(values, options.reduction);
}

}  // namespace tessera::nn
