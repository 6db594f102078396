#include <fmt/format.h>

#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tools/bench/bench_gpu_bandwidth.h"

namespace tessera {

Bandwidth::Bandwidth(const BenchRun& run, DType dtype)
    : run_(run), dtype_(dtype), rows_(run.smoke ? 6 : 16384), width_(run.smoke ? 40 : 4096) {}

void Bandwidth::measure(const Moved& moved, const std::function<void()>& body) const {
  const std::int64_t half = moved.bytes / 2;  // a copy reads and writes it
  const Tensor from = zeros({half}, {.dtype = DType::kU8, .device = run_.device});
  const Tensor to = empty_like(from);
  const auto copy = [&] {
    if (run_.device.is_cpu()) return copy_(to, from);
    current_stream(run_.device)
        .cuda_queue()
        .copy(write(to).data, read(from).data, static_cast<std::size_t>(half));
  };
  const Comparison times = compare(run_, body, copy);
  print_row(run_,
            fmt::format(R"("bench": "bandwidth", "op": "{}", "pass": "{}", "dtype": "{}")",
                        moved.op, moved.pass, dtype_name(dtype_)),
            fmt::format(R"("bytes": {}, "us": {:.2f}, "copy_us": {:.2f}, "gb_per_s": {:.0f}, )"
                        R"("ratio": {:.3f}, "goal": 0.88)",
                        moved.bytes, times.ours, times.theirs,
                        static_cast<double>(moved.bytes) / times.ours * 1e-3, times.ratio));
}

Tensor Bandwidth::random(const Shape& shape, const char* name) const {
  return random_tensor(shape, {.dtype = dtype_, .device = run_.device}, name);
}

}  // namespace tessera
