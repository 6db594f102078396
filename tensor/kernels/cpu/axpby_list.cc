#include "tessera/tensor/kernels/axpby_list.h"

#include "tessera/tensor/kernels/cpu/segments.h"

namespace tessera {
namespace {

using Segment = AxpbyListKernel::Segment;

struct AxpbyStep {
  ConstView factor;

  template <class C>
  C alpha_of(const Segment& s) const {
    if (!factor.defined()) return static_cast<C>(s.alpha);
    C value;
    cpu::load_run(factor.dtype, factor.data, 1, 1, &value);
    return value;
  }

  template <class C>
  void operator()(const Segment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> from, to;
    const C* x = from.read(s.x, begin, n);
    const C alpha = alpha_of<C>(s), beta = static_cast<C>(s.beta);
    if (s.beta == 0 && alpha == 1) {
      if (s.x.data == s.y.data) return;
      return cpu::store_run(s.y.dtype, cpu::advance(s.y.data, s.y.dtype, begin), 1, n, x);
    }
    C* y = s.beta == 0 ? to.place(s.y, begin) : to.open(s.y, begin, n);
    if (s.beta == 0) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) y[i] = alpha * x[i];
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) y[i] = alpha * x[i] + beta * y[i];
    }
    to.write(s.y, begin, n);
  }
};

}  // namespace

void AxpbyListKernel::cpu(const Args& a, Workspace) {
  cpu::for_each_block(
      a.segments,
      [](const Segment& s) {
        return cpu::SegmentWork{s.y.numel(), compute(s)};
      },
      AxpbyStep{a.factor});
}

}  // namespace tessera
