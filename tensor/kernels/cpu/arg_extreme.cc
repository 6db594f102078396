#include "tessera/tensor/kernels/arg_extreme.h"

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/lines.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
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
