#include "tessera/tensor/kernels/adam.h"

#include <cmath>

#include "tessera/tensor/kernels/cpu/segments.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera {
namespace {

using Segment = AdamKernel::Segment;

// The numbers of a segment in the type that is computed in.
template <class C>
struct Factors {
  explicit Factors(const Segment& s)
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
struct Moved {
  C parameter, average, square;
};

// One element up to the new square, which amsgrad may replace by a larger one.
template <class C>
Moved<C> averages(const Factors<C>& f, C p, C gradient, C average, C square) {
  const C g = scalar::fma(f.coupled_decay, p, gradient * f.sign);
  return {.parameter = p * f.shrink,
          .average = scalar::fma(f.share1, g - average, average),
          .square = scalar::fma(f.share2 * g, g, scalar::mul(f.beta2, square))};
}

template <class C>
C stepped(const Factors<C>& f, const Moved<C>& m, C square) {
  const C divisor = scalar::fma(std::sqrt(square), f.root_scale, f.eps);
  return scalar::fma(-f.step_size, m.average / divisor, m.parameter);
}

struct Step {
  template <class C>
  void operator()(const Segment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, averages_block, squares_block, largest_block;
    C* p = parameters.open(s.parameter, begin, n);
    const C* g = gradients.read(s.gradient, begin, n);
    C* m = averages_block.open(s.exp_avg, begin, n);
    C* v = squares_block.open(s.exp_avg_sq, begin, n);
    C* largest = largest_block.open(s.max_exp_avg_sq, begin, n);
    const Factors<C> f(s);
    if (largest == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const Moved<C> moved = averages(f, p[i], g[i], m[i], v[i]);
        m[i] = moved.average;
        v[i] = moved.square;
        p[i] = stepped(f, moved, moved.square);
      }
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const Moved<C> moved = averages(f, p[i], g[i], m[i], v[i]);
        m[i] = moved.average;
        v[i] = moved.square;
        largest[i] = largest[i] > moved.square ? largest[i] : moved.square;
        p[i] = stepped(f, moved, largest[i]);
      }
    }
    parameters.write(s.parameter, begin, n);
    averages_block.write(s.exp_avg, begin, n);
    squares_block.write(s.exp_avg_sq, begin, n);
    largest_block.write(s.max_exp_avg_sq, begin, n);
  }
};

}  // namespace

void AdamKernel::cpu(const Args& a, Workspace) { cpu::for_each_block(a.segments, Step()); }

}  // namespace tessera
