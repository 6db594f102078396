#include "tessera/tensor/kernels/lion.h"

#include "tessera/tensor/kernels/cpu/segments.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

using Segment = LionKernel::Segment;

struct Step {
  template <class C>
  void operator()(const Segment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, averages;
    C* p = parameters.open(s.parameter, begin, n);
    const C* gradient = gradients.read(s.gradient, begin, n);
    C* average = averages.open(s.exp_avg, begin, n);
    const optimizer::LionFactors<C> f(s);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const auto moved = optimizer::lion_element(f, p[i], gradient[i], average[i]);
      p[i] = moved.parameter;
      average[i] = moved.average;
    }
    parameters.write(s.parameter, begin, n);
    averages.write(s.exp_avg, begin, n);
  }
};

}  // namespace

void LionKernel::cpu(const Args& a, Workspace) { cpu::for_each_block(a.segments, Step()); }

}  // namespace tessera
