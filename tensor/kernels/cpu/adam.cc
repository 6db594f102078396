#include "tessera/tensor/kernels/adam.h"

#include "tessera/tensor/kernels/cpu/segments.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

using Segment = AdamKernel::Segment;

// The parameter as stored, after rounding to its dtype.
template <class C>
void write_copy(const Segment& s, const C* p, std::int64_t begin, std::int64_t n) {
  if (!s.copy.defined()) return;
  C buffer[cpu::kBlockLength];
  if (s.parameter.dtype != dtype_of<C>) {
    const void* from = cpu::advance(s.parameter.data, s.parameter.dtype, begin);
    cpu::load_run(s.parameter.dtype, from, 1, n, buffer);
    p = buffer;
  }
  cpu::store_run(s.copy.dtype, cpu::advance(s.copy.data, s.copy.dtype, begin), 1, n, p);
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
    const optimizer::AdamFactors<C> f(s);
    if (largest == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const auto moved = optimizer::adam_averages(f, p[i], g[i], m[i], v[i]);
        m[i] = moved.average;
        v[i] = moved.square;
        p[i] = optimizer::adam_stepped(f, moved, moved.square);
      }
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const auto moved = optimizer::adam_averages(f, p[i], g[i], m[i], v[i]);
        m[i] = moved.average;
        v[i] = moved.square;
        largest[i] = largest[i] > moved.square ? largest[i] : moved.square;
        p[i] = optimizer::adam_stepped(f, moved, largest[i]);
      }
    }
    parameters.write(s.parameter, begin, n);
    averages_block.write(s.exp_avg, begin, n);
    squares_block.write(s.exp_avg_sq, begin, n);
    largest_block.write(s.max_exp_avg_sq, begin, n);
    write_copy(s, p, begin, n);
  }
};

}  // namespace

void AdamKernel::cpu(const Args& a, Workspace) { cpu::for_each_block(a.segments, Step()); }

}  // namespace tessera
