#include "tessera/tensor/kernels/elementwise.h"

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/cpu/transpose.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// y = x, converted at once, if one of the two has the compute type and both have long runs; else false.
template <class C>
bool convert(const AxpbyKernel::Args& a) {
  constexpr std::int64_t kShortest = 16;
  const int last = a.y.shape.ndim() - 1;
  if (last < 0 || a.y.shape[last] < kShortest) return false;
  const bool loads = a.y.dtype == dtype_of<C> && a.y.strides[last] == 1;
  if (!loads && (a.x.dtype != dtype_of<C> || a.x.strides[last] != 1)) return false;
  cpu::parallel_walk(cpu::make_traversal(a.y.shape, a.x.strides, a.y.strides),
                     [&](const auto& offsets, const auto& steps, std::int64_t n) {
                       const void* from = cpu::advance(a.x.data, a.x.dtype, offsets[0]);
                       void* to = cpu::advance(a.y.data, a.y.dtype, offsets[1]);
                       if (loads) {
                         cpu::load_run(a.x.dtype, from, steps[0], n, static_cast<C*>(to));
                       } else {
                         cpu::store_run(a.y.dtype, to, steps[1], n, static_cast<const C*>(from));
                       }
                     });
  return true;
}

template <class C>
void run(const AxpbyKernel::Args& a) {
  const C alpha = cpu::number_as<C>(a.alpha), beta = cpu::number_as<C>(a.beta);
  if (a.beta != 0) {
    const ConstView y = {
        .data = a.y.data, .dtype = a.y.dtype, .shape = a.y.shape, .strides = a.y.strides};
    return cpu::map<C>(
        a.y, [=](C x, C before) { return alpha * x + beta * before; }, a.x, y);
  }
  if (a.alpha == 1 && convert<C>(a)) return;
  if (a.alpha == 1)
    return cpu::map<C>(
        a.y, [](C x) { return x; }, a.x);
  cpu::map<C>(
      a.y, [=](C x) { return alpha * x; }, a.x);
}

// Few elements along the last dim: those of the dim before it are copied in long loops instead, a
// piece that stays in the cache at a time.
constexpr std::int64_t kShortLine = 8;
bool are_short(const cpu::Traversal<2>& lines) {
  const int last = lines.ndim - 1;
  return last > 0 && lines.shape[last] < kShortLine &&
         lines.strides[1][last - 1] == lines.shape[last] * lines.strides[1][last];
}
template <class B>
void copy_short_lines(const cpu::Traversal<2>& lines, const B* from, B* to) {
  constexpr std::int64_t kLength = 1024;
  const int last = lines.ndim - 1;
  cpu::Traversal<2> others = lines;
  others.ndim = last;
  cpu::parallel_walk(others, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += kLength) {
      const std::int64_t n = std::min(kLength, count - at);
      const B* first = from + offsets[0] + at * steps[0];
      B* place = to + offsets[1] + at * steps[1];
      for (std::int64_t j = 0; j < lines.shape[last]; ++j) {
        cpu::copy_run(first + j * lines.strides[0][last], steps[0],
                      place + j * lines.strides[1][last], steps[1], n);
      }
    }
  });
}

void copy(const AxpbyKernel::Args& a) {
  cpu::with_bits(a.y.dtype, [&]<class B>() {
    const auto* from = static_cast<const B*>(a.x.data);
    auto* to = static_cast<B*>(a.y.data);
    const cpu::Traversal<2> all = cpu::make_traversal(a.y.shape, a.x.strides, a.y.strides);
    if (cpu::contiguous_dims(all).differ(all)) return cpu::TransposedCopy<B>(all, from, to).run();
    if (are_short(all)) return copy_short_lines(all, from, to);
    cpu::parallel_walk(all, [&](const auto& offsets, const auto& steps, std::int64_t n) {
      cpu::copy_run(from + offsets[0], steps[0], to + offsets[1], steps[1], n);
    });
  });
}

void fill(const AxpbyKernel::Args& a) {
  const cpu::Traversal<1> all = cpu::make_traversal(a.y.shape, a.y.strides);
  cpu::with_bits(a.y.dtype, [&]<class B>() {
    B value;
    cpu::store_run(a.y.dtype, &value, 1, 1, &a.number);
    auto* to = static_cast<B*>(a.y.data);
    cpu::parallel_walk(all, [&](const auto& offsets, const auto& steps, std::int64_t n) {
      cpu::fill_run(to + offsets[0], steps[0], n, value);
    });
  });
}

}  // namespace

void AxpbyKernel::cpu(const Args& a, Workspace) {
  if (a.x.defined() && a.x.dtype == a.y.dtype && a.alpha == 1 && a.beta == 0) return copy(a);
  if (!a.x.defined()) return fill(a);
  with_compute_type(axpby_compute(a), [&]<class C>() { run<C>(a); });
}

}  // namespace tessera
