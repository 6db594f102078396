#include "tessera/tensor/kernels/order.h"

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/sort_key.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

using Entry = ArgsortKernel::Entry;

// Equal elements keep their order.
constexpr auto kBefore = [](const Entry& a, const Entry& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
};

template <class C>
void load_entries(const ConstView& x, std::int64_t offset, bool descending, Entry* out) {
  constexpr std::int64_t kLength = 512;
  const int last = x.shape.ndim() - 1;
  const std::int64_t n = x.shape[last], step = x.strides[last];
  C buffer[kLength];
  for (std::int64_t at = 0; at < n; at += kLength) {
    const std::int64_t count = std::min(kLength, n - at);
    cpu::load_run(x.dtype, cpu::advance(x.data, x.dtype, offset + at * step), step, count, buffer);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t key = sort_key(buffer[i]);
      out[at + i] = {.key = descending ? ~key : key, .position = at + i};
    }
  }
}

}  // namespace

void ArgsortKernel::cpu(const Args& a, Workspace scratch) {
  const int last = a.x.shape.ndim() - 1;
  const std::int64_t n = a.extent(), k = a.y.shape[last], step = a.y.strides[last];
  const std::int64_t groups = a.groups(), lines = a.lines();
  const auto walk =
      cpu::make_traversal(cpu::leading(a.x.shape, last), cpu::leading(a.x.strides, last),
                          cpu::leading(a.y.strides, last));
  std::int64_t* y = a.y.as<std::int64_t>();
#pragma omp parallel for schedule(static) if (lines * n > cpu::kPiece)
  for (std::int64_t g = 0; g < groups; ++g) {
    Entry* entries = static_cast<Entry*>(scratch.data) + g * n;
    cpu::walk_lines(walk, lines * g / groups, lines * (g + 1) / groups, [&](const auto& offsets) {
      if (is_floating(a.x.dtype)) {
        load_entries<double>(a.x, offsets[0], a.descending, entries);
      } else {
        load_entries<std::int64_t>(a.x, offsets[0], a.descending, entries);
      }
      if (k < n) std::nth_element(entries, entries + k, entries + n, kBefore);
      std::sort(entries, entries + k, kBefore);
      for (std::int64_t i = 0; i < k; ++i) y[offsets[1] + i * step] = entries[i].position;
    });
  }
}

namespace {

template <class C>
std::int64_t find(const ConstView& x, std::int64_t offset, bool largest) {
  constexpr std::int64_t kLength = 512;
  const int last = x.shape.ndim() - 1;
  const std::int64_t n = x.shape[last], step = x.strides[last];
  C buffer[kLength];
  C best = 0;
  std::int64_t position = 0;
  for (std::int64_t at = 0; at < n; at += kLength) {
    const std::int64_t count = std::min(kLength, n - at);
    cpu::load_run(x.dtype, cpu::advance(x.data, x.dtype, offset + at * step), step, count, buffer);
    if (at == 0) best = buffer[0];
    for (std::int64_t i = 0; i < count; ++i) {
      if (buffer[i] != buffer[i]) return at + i;
      if (largest ? buffer[i] > best : buffer[i] < best) {
        best = buffer[i];
        position = at + i;
      }
    }
  }
  return position;
}

}  // namespace

void ArgExtremeKernel::cpu(const Args& a, Workspace) {
  const int last = a.x.shape.ndim() - 1;
  const auto lines = cpu::make_traversal(cpu::leading(a.x.shape, last),
                                         cpu::leading(a.x.strides, last), a.y.strides);
  std::int64_t* y = a.y.as<std::int64_t>();
  with_compute_type(a.x.dtype, [&]<class C>() {
    cpu::parallel_lines(lines, a.x.shape[last], [&](const auto& offsets) {
      y[offsets[1]] = find<C>(a.x, offsets[0], a.largest);
    });
  });
}

namespace {

// Where a line, or adjacent lines, start in walking order, and how they continue.
struct Lines {
  std::int64_t from, x_step;
  std::int64_t to, y_step;
  std::int64_t n;
};

template <class C>
void sum_line(const CumsumKernel::Args& a, const Lines& line) {
  constexpr std::int64_t kLength = 512;
  C buffer[kLength];
  C total = 0;
  for (std::int64_t at = 0; at < line.n; at += kLength) {
    const std::int64_t count = std::min(kLength, line.n - at);
    cpu::load_run(a.x.dtype, cpu::advance(a.x.data, a.x.dtype, line.from + at * line.x_step),
                  line.x_step, count, buffer);
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = total += buffer[i];
    cpu::store_run(a.y.dtype, cpu::advance(a.y.data, a.y.dtype, line.to + at * line.y_step),
                   line.y_step, count, buffer);
  }
}

// `width` lines that are adjacent in memory advance together, each in the same order.
constexpr std::int64_t kColumns = 64;
template <class C>
void sum_columns(const CumsumKernel::Args& a, const Lines& first, std::int64_t width) {
  C totals[kColumns] = {}, row[kColumns];
  for (std::int64_t at = 0; at < first.n; ++at) {
    cpu::load_run(a.x.dtype, cpu::advance(a.x.data, a.x.dtype, first.from + at * first.x_step), 1,
                  width, row);
    for (std::int64_t c = 0; c < width; ++c) totals[c] += row[c];
    cpu::store_run(a.y.dtype, cpu::advance(a.y.data, a.y.dtype, first.to + at * first.y_step), 1,
                   width, totals);
  }
}

template <class C>
void sum_lines(const CumsumKernel::Args& a) {
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
                if (steps[0] == 1 && steps[1] == 1) return sum_columns<C>(a, line, width);
                for (std::int64_t i = 0; i < width; ++i) {
                  sum_line<C>(a, line);
                  line.from += steps[0];
                  line.to += steps[1];
                }
              });
  }
}

}  // namespace

void CumsumKernel::cpu(const Args& a, Workspace) {
  if (is_floating(a.x.dtype)) return sum_lines<double>(a);
  sum_lines<std::int64_t>(a);
}

}  // namespace tessera
