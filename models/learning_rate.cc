#include "tessera/models/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::models {

double learning_rate(const LearningRateOptions& options, std::int64_t step) {
  if (step <= options.warmup_steps)
    return options.peak * static_cast<double>(step) / static_cast<double>(options.warmup_steps);
  // Steps after the warm-up have the middles of equal pieces of [0, pi]: the last one still learns.
  const auto rest =
      static_cast<double>(std::max<std::int64_t>(1, options.steps - options.warmup_steps));
  const double place = (static_cast<double>(step - options.warmup_steps) - 0.5) / rest;
  return options.peak * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(place, 1.0)));
}

}  // namespace tessera::models
