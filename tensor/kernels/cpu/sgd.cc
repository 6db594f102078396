#include "tessera/tensor/kernels/sgd.h"

#include "tessera/tensor/kernels/cpu/segments.h"

namespace tessera {
namespace {

using Segment = SgdKernel::Segment;

struct Step {
  template <class C>
  void operator()(const Segment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, momenta;
    C* p = parameters.open(s.parameter, begin, n);
    const C* gradient = gradients.read(s.gradient, begin, n);
    C* momentum = momenta.open(s.momentum, begin, n);
    const C lr = static_cast<C>(s.lr), decay = static_cast<C>(s.weight_decay);
    const C sign = s.maximize ? C(-1) : C(1);
    if (momentum == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) p[i] -= lr * (gradient[i] * sign + decay * p[i]);
    } else {
      const C factor = static_cast<C>(s.momentum_factor), share = static_cast<C>(1 - s.dampening);
      const bool nesterov = s.nesterov, first = s.first_step;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const C g = gradient[i] * sign + decay * p[i];
        const C m = first ? g : factor * momentum[i] + share * g;
        momentum[i] = m;
        p[i] -= lr * (nesterov ? g + factor * m : m);
      }
    }
    parameters.write(s.parameter, begin, n);
    momenta.write(s.momentum, begin, n);
  }
};

}  // namespace

void SgdKernel::cpu(const Args& a, Workspace) { cpu::for_each_block(a.segments, Step()); }

}  // namespace tessera
