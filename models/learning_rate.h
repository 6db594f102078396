#pragma once

/// The learning rate over a run: a straight rise, then half a cosine down to zero. Pure functions.

#include <cstdint>

namespace tessera::models {

struct LearningRateOptions {
  double peak = 0.1;
  std::int64_t steps = 1;         ///< of the whole run, at least 1
  std::int64_t warmup_steps = 0;  ///< the rate of step `warmup_steps` is `peak`
};

/// The rate of a step, counted from 1. Positive for every step of the run when `peak` is.
double learning_rate(const LearningRateOptions& options, std::int64_t step);

}  // namespace tessera::models
