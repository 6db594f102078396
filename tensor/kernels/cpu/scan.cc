#include "tessera/tensor/kernels/scan.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/scan_quad.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/scan_steps.h"

namespace tessera {
namespace {

// Where a line, or adjacent lines, start in walking order, and how they continue.
struct Lines {
  std::int64_t from, x_step;
  std::int64_t to, y_step;
  std::int64_t n;
};

// A step waits for the result of the one before it, so that several lines together take hardly
// longer than one.
constexpr std::int64_t kTogether = 4;

// kLines lines with elements of any type, by way of buffers.
template <class C, class Step, std::int64_t kLines>
void scan_some(const ScanKernel::Args& a, const Lines& first, std::int64_t x_apart,
               std::int64_t y_apart) {
  constexpr std::int64_t kLength = 256;
  C buffer[kLines][kLength];
  typename Step::Result results[kLines][kLength];
  typename Step::State states[kLines];
  for (auto& state : states) state = Step::none();
  for (std::int64_t at = 0; at < first.n; at += kLength) {
    const std::int64_t count = std::min(kLength, first.n - at);
    const std::int64_t from = first.from + at * first.x_step, to = first.to + at * first.y_step;
    for (std::int64_t w = 0; w < kLines; ++w) {
      cpu::load_run(a.x.dtype, cpu::advance(a.x.data, a.x.dtype, from + w * x_apart), first.x_step,
                    count, buffer[w]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 4
      for (std::int64_t w = 0; w < kLines; ++w) {
        states[w] = Step::combine(states[w], Step::of(buffer[w][i], at + i));
        results[w][i] = Step::result(states[w]);
      }
    }
    for (std::int64_t w = 0; w < kLines; ++w) {
      cpu::store_run(a.y.dtype, cpu::advance(a.y.data, a.y.dtype, to + w * y_apart), first.y_step,
                     count, results[w]);
    }
  }
}

// kTogether lines of f32 or bf16, each with adjacent elements.
template <class Step, class T>
void scan_plain(const ScanKernel::Args& a, const Lines& first, std::int64_t x_apart,
                std::int64_t y_apart) {
  const T* x = a.x.as<T>() + first.from;
  T* y = a.y.as<T>() + first.to;
  first.x_step == 1 ? cpu::scan_quad<Step, T, false>(x, x_apart, y, y_apart, first.n)
                    : cpu::scan_quad<Step, T, true>(x, x_apart, y, y_apart, first.n);
}

template <class C, class Step>
void scan_together(const ScanKernel::Args& a, const Lines& first, std::int64_t x_apart,
                   std::int64_t y_apart) {
  if constexpr (cpu::kHasQuads<Step>) {
    const bool plain = first.x_step == first.y_step && std::abs(first.x_step) == 1;
    if (plain && a.x.dtype == DType::kF32 && a.y.dtype == DType::kF32)
      return scan_plain<Step, float>(a, first, x_apart, y_apart);
    if (plain && a.x.dtype == DType::kBF16 && a.y.dtype == DType::kBF16)
      return scan_plain<Step, BFloat16>(a, first, x_apart, y_apart);
  }
  scan_some<C, Step, kTogether>(a, first, x_apart, y_apart);
}

// `width` lines that are adjacent in memory advance together, each in the same order.
constexpr std::int64_t kColumns = 64;
template <class C, class Step>
void scan_columns(const ScanKernel::Args& a, const Lines& first, std::int64_t width) {
  typename Step::State states[kColumns];
  typename Step::Result results[kColumns];
  C row[kColumns];
  for (std::int64_t c = 0; c < width; ++c) states[c] = Step::none();
  for (std::int64_t at = 0; at < first.n; ++at) {
    cpu::load_run(a.x.dtype, cpu::advance(a.x.data, a.x.dtype, first.from + at * first.x_step), 1,
                  width, row);
    for (std::int64_t c = 0; c < width; ++c) {
      states[c] = Step::combine(states[c], Step::of(row[c], at));
      results[c] = Step::result(states[c]);
    }
    cpu::store_run(a.y.dtype, cpu::advance(a.y.data, a.y.dtype, first.to + at * first.y_step), 1,
                   width, results);
  }
}

template <class C, class Step>
void scan_lines(const ScanKernel::Args& a) {
  const int last = a.x.shape.ndim() - 1;
  const std::int64_t n = a.x.shape[last];
  const std::int64_t sign = a.reverse ? -1 : 1, skipped = a.reverse ? n - 1 : 0;
  const std::int64_t x_step = a.x.strides[last], y_step = a.y.strides[last];
  const auto lines =
      cpu::make_traversal(cpu::leading(a.x.shape, last), cpu::leading(a.x.strides, last),
                          cpu::leading(a.y.strides, last));
  const std::int64_t total = n == 0 ? 0 : lines.numel();
  const std::int64_t groups = (total + kColumns - 1) / kColumns;
  cpu::parallel_for(groups, cpu::threads_for(total * n), [&](std::int64_t g) {
    cpu::walk(lines, g * kColumns, std::min(total, (g + 1) * kColumns),
              [&](const auto& offsets, const auto& steps, std::int64_t width) {
                Lines line{offsets[0] + skipped * x_step, sign * x_step,
                           offsets[1] + skipped * y_step, sign * y_step, n};
                if (steps[0] == 1 && steps[1] == 1) return scan_columns<C, Step>(a, line, width);
                std::int64_t left = width;
                for (; left >= kTogether; left -= kTogether) {
                  scan_together<C, Step>(a, line, steps[0], steps[1]);
                  line.from += kTogether * steps[0];
                  line.to += kTogether * steps[1];
                }
                for (; left > 0; --left) {
                  scan_some<C, Step, 1>(a, line, 0, 0);
                  line.from += steps[0];
                  line.to += steps[1];
                }
              });
  });
}

}  // namespace

void ScanKernel::cpu(const Args& a, Workspace) {
  with_scan_step(a.x.dtype, a.op, [&]<class C, class Step>() { scan_lines<C, Step>(a); });
}

}  // namespace tessera
