#include "tessera/tools/program/flops.h"

#include <algorithm>
#include <chrono>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::tools {

double training_flops_per_token(const ModelFlopsArgs& args) {
  const double attention = 12.0 * static_cast<double>(args.layers) * static_cast<double>(args.dim) *
                           static_cast<double>(args.length);
  return 6.0 * static_cast<double>(args.matmul_parameters) +
         (args.causal ? attention / 2 : attention);
}

namespace {

using Clock = std::chrono::steady_clock;

// Range of extents. Measures the first square whose product takes long enough that its cost is its
// arithmetic, on any device.
constexpr std::int64_t kSmallest = 256, kLargest = 8192;
constexpr double kLongEnough = 5e-3;
constexpr double kSeconds = 0.15;
constexpr int kFewest = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of the fastest product of squares with this extent, out of a few, or as many as fit into
// `seconds`.
double fastest_product(std::int64_t extent, const TensorOptions& options, double seconds) {
  const Tensor a = full({extent, extent}, 0.5, options), out = full({extent, extent}, 0, options);
  const auto product = [&] {
    const Clock::time_point start = Clock::now();
    matmul_into(out, a, a, {});
    current_stream(options.device).synchronize();
    return seconds_since(start);
  };
  product();  // the first call generates code
  double best = product();
  const Clock::time_point start = Clock::now();
  for (int run = 0; run < kFewest || seconds_since(start) < seconds; ++run)
    best = std::min(best, product());
  return best;
}

}  // namespace

double measure_peak_flops(DType dtype, Device device) {
  TESSERA_CHECK(is_floating(dtype), "peak_flops", "dtype is {}; it must be floating",
                dtype_name(dtype));
  const TensorOptions options{.dtype = dtype, .device = device};
  std::int64_t extent = kSmallest;
  while (extent < kLargest && fastest_product(extent, options, 0) < kLongEnough) extent *= 2;
  const auto size = static_cast<double>(extent);
  return 2 * size * size * size / fastest_product(extent, options, kSeconds);
}

}  // namespace tessera::tools
