#pragma once

// Shared by the benchmarks of tools/ (benchmarks in other folders cannot depend on it): a clock,
// and the median.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace tessera {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Microseconds that `body` takes on the calling thread.
template <class Body>
double microseconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace tessera
