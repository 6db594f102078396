#include "tessera/tensor/kernels/fill.h"

#include <algorithm>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void ArangeKernel::cpu(const Args& a, Workspace) {
  const std::int64_t n = a.y.shape[0];
  const double first = a.first, step = a.step, last = a.last;
  const std::int64_t mirror = a.mirror;
  with_type(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    cpu::parallel_pieces(n, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double value = i < mirror ? scalar::fma(step, static_cast<double>(i), first)
                                        : scalar::fma(-step, static_cast<double>(n - 1 - i), last);
        y[i] = convert_element<T>(value);
      }
    });
  });
}

namespace {

// Apart from the loop with strides, so that the compiler vectorises it. `to` may be `from`: no step
// reads what another one wrote.
template <class B>
void fill_adjacent_masked(const B* from, const unsigned char* set, B value, std::int64_t n, B* to) {
  const auto bits = value.value;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i].value = set[i] != 0 ? bits : from[i].value;
}

}  // namespace

void MaskedFillKernel::cpu(const Args& a, Workspace) {
  const auto t = cpu::make_traversal(a.y.shape, a.x.strides, a.mask.strides, a.y.strides);
  const unsigned char* mask = a.mask.as<unsigned char>();
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>();
    B* y = a.y.as<B>();
    B value;
    cpu::store_run(a.x.dtype, &value, 1, 1, &a.value);
    cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      const B* from = x + offsets[0];
      const unsigned char* set = mask + offsets[1];
      B* to = y + offsets[2];
      if (steps[0] == 1 && steps[1] == 1 && steps[2] == 1)
        return fill_adjacent_masked(from, set, value, count, to);
      for (std::int64_t i = 0; i < count; ++i)
        to[i * steps[2]] = set[i * steps[1]] != 0 ? value : from[i * steps[0]];
    });
  });
}

void MaskedScatterKernel::cpu(const Args& a, Workspace) {
  const auto t =
      cpu::make_traversal(a.y.shape, a.x.strides, a.mask.strides, a.places.strides, a.y.strides);
  const unsigned char* mask = a.mask.as<unsigned char>();
  const std::int64_t* places = a.places.as<std::int64_t>();
  const std::int64_t n = a.source.shape[0];
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>();
    const B* source = a.source.as<B>();
    B* y = a.y.as<B>();
    cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      const B* from = x + offsets[0];
      const unsigned char* set = mask + offsets[1];
      const std::int64_t* place = places + offsets[2];
      B* to = y + offsets[3];
      for (std::int64_t i = 0; i < count; ++i) {
        to[i * steps[3]] = set[i * steps[1]] != 0 && n > 0
                               ? source[std::min(place[i * steps[2]], n) - 1]
                               : from[i * steps[0]];
      }
    });
  });
}

void TriangleKernel::cpu(const Args& a, Workspace) {
  const int ndim = a.y.shape.ndim();
  const std::int64_t rows = a.y.shape[ndim - 2], columns = a.y.shape[ndim - 1];
  const auto t = cpu::make_traversal(a.y.shape, a.x.strides, a.y.strides);
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>();
    B* y = a.y.as<B>();
    cpu::parallel_pieces(t.numel(), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t at = begin;
      cpu::walk(t, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
        // Elements before the edge are on one side of the diagonal.
        const std::int64_t first = at % columns - at / columns % rows;  // j - i
        const std::int64_t edge =
            std::clamp<std::int64_t>(a.diagonal - first + (a.upper ? 0 : 1), 0, count);
        const std::int64_t begin_kept = a.upper ? edge : 0, end_kept = a.upper ? count : edge;
        B* to = y + offsets[1];
        for (std::int64_t i = 0; i < begin_kept; ++i) to[i * steps[1]] = B{};
        cpu::copy_run(x + offsets[0] + begin_kept * steps[0], steps[0], to + begin_kept * steps[1],
                      steps[1], end_kept - begin_kept);
        for (std::int64_t i = end_kept; i < count; ++i) to[i * steps[1]] = B{};
        at += count;
      });
    });
  });
}

void FlipKernel::cpu(const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  Shape strides = a.x.strides;
  std::int64_t first = 0;
  for (int d = 0; d < strides.ndim(); ++d) {
    if (!a.reversed[static_cast<std::size_t>(d)]) continue;
    first += (a.x.shape[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const auto t = cpu::make_traversal(a.y.shape, strides, a.y.strides);
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>() + first;
    B* y = a.y.as<B>();
    cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      cpu::copy_run(x + offsets[0], steps[0], y + offsets[1], steps[1], count);
    });
  });
}

}  // namespace tessera
