#pragma once

/// A search for a step length that satisfies the strong Wolfe conditions, as PyTorch's LBFGS makes it (Nocedal and
/// Wright, "Numerical optimization", algorithms 3.5 and 3.6, with cubic interpolation). For optim itself.

#include <cstdint>
#include <functional>

#include "tessera/tensor/tensor.h"

namespace tessera::nn::optim {

/// A place on the line that is searched.
struct LinePoint {
  double t = 0;  ///< step length
  double loss = 0;
  Tensor gradient;   ///< flat
  double slope = 0;  ///< gradient . direction
};

struct LineSearchOptions {
  double first = 1;              ///< step length that is tried first
  std::int64_t iterations = 25;  ///< each evaluates one point more, after the first
  double largest_change = 0;     ///< of an element for a step length of 1
};
struct LineSearchResult {
  LinePoint point;
  std::int64_t evaluations = 0;
};
/// From `start`, where t is 0 and the slope negative. `evaluate(t)` gives the point at a step length.
LineSearchResult strong_wolfe(const LinePoint& start,
                              const std::function<LinePoint(double t)>& evaluate,
                              const LineSearchOptions& options);

}  // namespace tessera::nn::optim
