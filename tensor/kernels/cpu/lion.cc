#include "tessera/tensor/kernels/lion.h"

#include "tessera/tensor/kernels/cpu/segments.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera {
namespace {

using Segment = LionKernel::Segment;

// share * g + beta * m
template <class C>
C mixed(C share, C g, C beta, C m) {
  return scalar::fma(share, g, scalar::mul(beta, m));
}

struct Step {
  template <class C>
  void operator()(const Segment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, averages;
    C* p = parameters.open(s.parameter, begin, n);
    const C* gradient = gradients.read(s.gradient, begin, n);
    C* average = averages.open(s.exp_avg, begin, n);
    const C lr = static_cast<C>(s.lr), shrink = static_cast<C>(s.shrink);
    const C sign = static_cast<C>(s.gradient_sign);
    const C beta1 = static_cast<C>(s.beta1), share1 = static_cast<C>(1 - s.beta1);
    const C beta2 = static_cast<C>(s.beta2), share2 = static_cast<C>(1 - s.beta2);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const C g = gradient[i] * sign, m = average[i];
      const C c = mixed(share1, g, beta1, m);
      // Zero stays zero and NaN stays NaN.
      const C direction = c > C(0) ? C(1) : c < C(0) ? C(-1) : c;
      p[i] = scalar::fma(-lr, direction, scalar::mul(p[i], shrink));
      average[i] = mixed(share2, g, beta2, m);
    }
    parameters.write(s.parameter, begin, n);
    averages.write(s.exp_avg, begin, n);
  }
};

}  // namespace

void LionKernel::cpu(const Args& a, Workspace) { cpu::for_each_block(a.segments, Step()); }

}  // namespace tessera
