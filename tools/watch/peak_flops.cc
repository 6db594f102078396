#include "tessera/tools/watch/peak_flops.h"

#include <algorithm>
#include <chrono>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Large enough that a product's cost is its arithmetic.
constexpr std::int64_t kSize = 768;
constexpr double kSeconds = 0.15;
constexpr int kFewest = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double measure_peak_flops(DType dtype) {
  TESSERA_CHECK(is_floating(dtype), "peak_flops", "dtype is {}; it must be floating",
                dtype_name(dtype));
  const Tensor a = full({kSize, kSize}, 0.5, {.dtype = dtype});
  const Tensor out = full({kSize, kSize}, 0, {.dtype = dtype});
  const auto product = [&] {
    const Clock::time_point start = Clock::now();
    matmul_into(out, a, a, {});
    current_stream(kCpu).synchronize();
    return seconds_since(start);
  };
  product();  // makes its code
  double best = product();
  const Clock::time_point start = Clock::now();
  for (int run = 0; run < kFewest || seconds_since(start) < kSeconds; ++run)
    best = std::min(best, product());
  return 2.0 * kSize * kSize * kSize / best;
}

}  // namespace tessera::tools
