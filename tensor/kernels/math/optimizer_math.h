#pragma once

/// The computation of optimizers for one element, written once for CPU and GPU, with the same bits.
/// The formulas are in ops/optim.h.

#include <cmath>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/optimizers.h"

namespace tessera::optimizer {

/// `factors` for gradients that count as multiplied by *scale, which may be null. The sign is exact,
/// so that this is one rounding, as of gradients that were multiplied before.
template <class Factors>
TESSERA_HD Factors scaled(const Factors& factors, const double* scale) {
  Factors out = factors;
  if (scale != nullptr) out.sign *= static_cast<decltype(out.sign)>(*scale);
  return out;
}

TESSERA_HD float root(float x) { return ::sqrtf(x); }
TESSERA_HD double root(double x) { return ::sqrt(x); }

// ---- Adam ---------------------------------------------------------------------------------------

/// The constants of a segment in the compute type.
template <class C>
struct AdamFactors {
  AdamFactors() = default;
  explicit AdamFactors(const AdamKernel::Segment& s)
      : step_size(static_cast<C>(s.step_size)),
        root_scale(static_cast<C>(s.root_scale)),
        share1(static_cast<C>(1 - s.beta1)),
        beta2(static_cast<C>(s.beta2)),
        share2(static_cast<C>(1 - s.beta2)),
        eps(static_cast<C>(s.eps)),
        shrink(static_cast<C>(s.shrink)),
        coupled_decay(static_cast<C>(s.coupled_decay)),
        sign(static_cast<C>(s.gradient_sign)) {}
  C step_size, root_scale, share1, beta2, share2, eps, shrink, coupled_decay, sign;
};

template <class C>
struct AdamMoved {
  C parameter, average, square;
};

/// Up to the new mean square, which amsgrad may replace by a larger one.
template <class C>
TESSERA_HD AdamMoved<C> adam_averages(const AdamFactors<C>& f, C p, C gradient, C average,
                                      C square) {
  const C g = scalar::fma(f.coupled_decay, p, gradient * f.sign);
  return {.parameter = p * f.shrink,
          .average = scalar::fma(f.share1, g - average, average),
          .square = scalar::fma(f.share2 * g, g, scalar::mul(f.beta2, square))};
}

/// The new parameter.
template <class C>
TESSERA_HD C adam_stepped(const AdamFactors<C>& f, const AdamMoved<C>& m, C square) {
  const C divisor = scalar::fma(root(square), f.root_scale, f.eps);
  return scalar::fma(-f.step_size, m.average / divisor, m.parameter);
}

// ---- SGD ----------------------------------------------------------------------------------------

template <class C>
struct SgdFactors {
  SgdFactors() = default;
  explicit SgdFactors(const SgdKernel::Segment& s)
      : lr(static_cast<C>(s.lr)),
        decay(static_cast<C>(s.weight_decay)),
        sign(s.maximize ? C(-1) : C(1)),
        factor(static_cast<C>(s.momentum_factor)),
        share(static_cast<C>(1 - s.dampening)),
        nesterov(s.nesterov),
        first(s.first_step) {}
  C lr, decay, sign, factor, share;
  bool nesterov, first;
};

template <class C>
struct SgdMoved {
  C parameter, momentum;
};

template <class C>
TESSERA_HD C sgd_without_momentum(const SgdFactors<C>& f, C p, C gradient) {
  return p - f.lr * (gradient * f.sign + f.decay * p);
}

template <class C>
TESSERA_HD SgdMoved<C> sgd_with_momentum(const SgdFactors<C>& f, C p, C gradient, C momentum) {
  const C g = gradient * f.sign + f.decay * p;
  const C m = f.first ? g : f.factor * momentum + f.share * g;
  return {.parameter = p - f.lr * (f.nesterov ? g + f.factor * m : m), .momentum = m};
}

// ---- Lion ---------------------------------------------------------------------------------------

template <class C>
struct LionFactors {
  LionFactors() = default;
  explicit LionFactors(const LionKernel::Segment& s)
      : lr(static_cast<C>(s.lr)),
        shrink(static_cast<C>(s.shrink)),
        sign(static_cast<C>(s.gradient_sign)),
        beta1(static_cast<C>(s.beta1)),
        share1(static_cast<C>(1 - s.beta1)),
        beta2(static_cast<C>(s.beta2)),
        share2(static_cast<C>(1 - s.beta2)) {}
  C lr, shrink, sign, beta1, share1, beta2, share2;
};

template <class C>
struct LionMoved {
  C parameter, average;
};

/// share * g + beta * m
template <class C>
TESSERA_HD C lion_mixed(C share, C g, C beta, C m) {
  return scalar::fma(share, g, scalar::mul(beta, m));
}

template <class C>
TESSERA_HD LionMoved<C> lion_element(const LionFactors<C>& f, C p, C gradient, C m) {
  const C g = gradient * f.sign;
  const C c = lion_mixed(f.share1, g, f.beta1, m);
  // Zero stays zero and NaN stays NaN.
  const C direction = c > C(0) ? C(1) : c < C(0) ? C(-1) : c;
  return {.parameter = scalar::fma(-f.lr, direction, scalar::mul(p, f.shrink)),
          .average = lion_mixed(f.share2, g, f.beta2, m)};
}

}  // namespace tessera::optimizer
