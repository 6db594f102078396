#include "tessera/autograd/anomaly.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/scope_name.h"

namespace tessera {

AnomalyGuard::AnomalyGuard(bool on)
    : previous_(std::exchange(detail::thread_state().settings.anomaly_mode, on)) {}

AnomalyGuard::~AnomalyGuard() { detail::thread_state().settings.anomaly_mode = previous_; }

namespace detail {

namespace {

struct Statistics {
  std::int64_t nans = 0;
  std::int64_t infs = 0;
  std::int64_t finite = 0;
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  double mean = 0;

  explicit Statistics(const std::vector<double>& values) {
    for (double value : values) {
      if (std::isnan(value)) {
        ++nans;
      } else if (std::isinf(value)) {
        ++infs;
      } else {
        ++finite;
        least = std::min(least, value);
        greatest = std::max(greatest, value);
        mean += (value - mean) / static_cast<double>(finite);
      }
    }
  }
  std::string str() const {
    if (finite == 0) return "none is finite";
    return fmt::format("the {} finite ones from {:.6g} to {:.6g}, mean {:.6g}", finite, least,
                       greatest, mean);
  }
};

}  // namespace

// Zero times a finite number is zero; times the others it is NaN, which a sum keeps.
bool all_finite(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype()) || x.device().is_null() || x.numel() == 0)
    return true;
  const Tensor zeros = mul(cast(x, compute_dtype(x.dtype())), 0.0);
  return std::isfinite(cast(sum(zeros), DType::kF64).item<double>());
}

void throw_anomaly(const char* where, const std::string& what, const Tensor& x) {
  const Statistics statistics(cast(x, DType::kF64).to_vector<double>());
  throw_error<AnomalyError>(where,
                            "{} holds {} NaN and {} Inf among {} elements; {}; shape {}, {}; "
                            "look at what it was computed from",
                            what, statistics.nans, statistics.infs, x.numel(), statistics.str(),
                            x.shape().str(), dtype_name(x.dtype()));
}

void check_result(const char* operation, int i, const Tensor& x) {
  if (all_finite(x)) return;
  throw_anomaly("anomaly",
                fmt::format("result {} of \"{}\" {}", i, operation, current_scope_text()), x);
}

}  // namespace detail
}  // namespace tessera
