#include "tessera/tensor/kernels/sgd.h"

#include "tessera/tensor/kernels/cpu/segments.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

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
    const optimizer::SgdFactors<C> f(s);
    if (momentum == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i)
        p[i] = optimizer::sgd_without_momentum(f, p[i], gradient[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const auto moved = optimizer::sgd_with_momentum(f, p[i], gradient[i], momentum[i]);
        momentum[i] = moved.momentum;
        p[i] = moved.parameter;
      }
    }
    parameters.write(s.parameter, begin, n);
    momenta.write(s.momentum, begin, n);
  }
};

}  // namespace

void SgdKernel::cpu(const Args& a, Workspace) { cpu::for_each_block(a.segments, Step()); }

}  // namespace tessera
