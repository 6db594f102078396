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

}  // namespace tessera
