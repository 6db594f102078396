#include "tessera/tensor/kernels/scan.h"

#include "tessera/tensor/kernels/cpu/convert.h"
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

template <class C, class Step>
void scan_line(const ScanKernel::Args& a, const Lines& line) {
  constexpr std::int64_t kLength = 512;
  C buffer[kLength];
  typename Step::Result results[kLength];
  auto state = Step::none();
  for (std::int64_t at = 0; at < line.n; at += kLength) {
    const std::int64_t count = std::min(kLength, line.n - at);
    cpu::load_run(a.x.dtype, cpu::advance(a.x.data, a.x.dtype, line.from + at * line.x_step),
                  line.x_step, count, buffer);
    for (std::int64_t i = 0; i < count; ++i) {
      state = Step::combine(state, Step::of(buffer[i], at + i));
      results[i] = Step::result(state);
    }
    cpu::store_run(a.y.dtype, cpu::advance(a.y.data, a.y.dtype, line.to + at * line.y_step),
                   line.y_step, count, results);
  }
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
#pragma omp parallel for schedule(static) if (total * n > cpu::kPiece)
  for (std::int64_t g = 0; g < groups; ++g) {
    cpu::walk(lines, g * kColumns, std::min(total, (g + 1) * kColumns),
              [&](const auto& offsets, const auto& steps, std::int64_t width) {
                Lines line{offsets[0] + skipped * x_step, sign * x_step,
                           offsets[1] + skipped * y_step, sign * y_step, n};
                if (steps[0] == 1 && steps[1] == 1) return scan_columns<C, Step>(a, line, width);
                for (std::int64_t i = 0; i < width; ++i) {
                  scan_line<C, Step>(a, line);
                  line.from += steps[0];
                  line.to += steps[1];
                }
              });
  }
}

}  // namespace

void ScanKernel::cpu(const Args& a, Workspace) {
  with_scan_step(a.x.dtype, a.op, [&]<class C, class Step>() { scan_lines<C, Step>(a); });
}

}  // namespace tessera
