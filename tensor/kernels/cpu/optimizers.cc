#include "tessera/tensor/kernels/optimizers.h"

#include "tessera/tensor/kernels/cpu/segments.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

using AdamSegment = AdamKernel::Segment;

// The parameter as stored, after rounding to its dtype.
template <class C>
void write_copy(const AdamSegment& s, const C* p, std::int64_t begin, std::int64_t n) {
  if (!s.copy.defined()) return;
  C buffer[cpu::kBlockLength];
  if (s.parameter.dtype != dtype_of<C>) {
    const void* from = cpu::advance(s.parameter.data, s.parameter.dtype, begin);
    cpu::load_run(s.parameter.dtype, from, 1, n, buffer);
    p = buffer;
  }
  cpu::store_run(s.copy.dtype, cpu::advance(s.copy.data, s.copy.dtype, begin), 1, n, p);
}

struct AdamStep {
  const double* gradient_scale;

  template <class C>
  void operator()(const AdamSegment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, averages_block, squares_block, largest_block;
    C* p = parameters.open(s.parameter, begin, n);
    const C* g = gradients.read(s.gradient, begin, n);
    C* m = averages_block.open(s.exp_avg, begin, n);
    C* v = squares_block.open(s.exp_avg_sq, begin, n);
    C* largest = largest_block.open(s.max_exp_avg_sq, begin, n);
    const auto f = optimizer::scaled(optimizer::AdamFactors<C>(s), gradient_scale);
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

void AdamKernel::cpu(const Args& a, Workspace) {
  cpu::for_each_block(a.segments, AdamStep{cpu::number_in(a.gradient_scale)});
}

namespace {

using LionSegment = LionKernel::Segment;

struct LionStep {
  const double* gradient_scale;

  template <class C>
  void operator()(const LionSegment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, averages;
    C* p = parameters.open(s.parameter, begin, n);
    const C* gradient = gradients.read(s.gradient, begin, n);
    C* average = averages.open(s.exp_avg, begin, n);
    const auto f = optimizer::scaled(optimizer::LionFactors<C>(s), gradient_scale);
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

void LionKernel::cpu(const Args& a, Workspace) {
  cpu::for_each_block(a.segments, LionStep{cpu::number_in(a.gradient_scale)});
}

namespace {

using SgdSegment = SgdKernel::Segment;

struct SgdStep {
  const double* gradient_scale;

  template <class C>
  void operator()(const SgdSegment& s, std::int64_t begin, std::int64_t n) const {
    cpu::SegmentBlock<C> parameters, gradients, momenta;
    C* p = parameters.open(s.parameter, begin, n);
    const C* gradient = gradients.read(s.gradient, begin, n);
    C* momentum = momenta.open(s.momentum, begin, n);
    const auto f = optimizer::scaled(optimizer::SgdFactors<C>(s), gradient_scale);
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

void SgdKernel::cpu(const Args& a, Workspace) {
  cpu::for_each_block(a.segments, SgdStep{cpu::number_in(a.gradient_scale)});
}

}  // namespace tessera
