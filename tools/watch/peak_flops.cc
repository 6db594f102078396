#include "tessera/tools/watch/peak_flops.h"

#include <algorithm>
#include <chrono>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Large enough that a product's cost is its arithmetic.
constexpr std::int64_t kSize = 768, kSizeOnGpu = 8192;
constexpr double kSeconds = 0.15;
constexpr int kFewest = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double measure_peak_flops(DType dtype, Device device) {
  TESSERA_CHECK(is_floating(dtype), "peak_flops", "dtype is {}; it must be floating",
                dtype_name(dtype));
  const std::int64_t size = device.is_cuda() ? kSizeOnGpu : kSize;
  const TensorOptions options{.dtype = dtype, .device = device};
  const Tensor a = full({size, size}, 0.5, options), out = full({size, size}, 0, options);
  const auto product = [&] {
    const Clock::time_point start = Clock::now();
    matmul_into(out, a, a, {});
    current_stream(device).synchronize();
    return seconds_since(start);
  };
  product();  // makes its code
  double best = product();
  const Clock::time_point start = Clock::now();
  for (int run = 0; run < kFewest || seconds_since(start) < kSeconds; ++run)
    best = std::min(best, product());
  const auto extent = static_cast<double>(size);
  return 2 * extent * extent * extent / best;
}

}  // namespace tessera::tools
