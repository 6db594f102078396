#pragma once

// Small helpers of the optimizer tests.

#include <string>
#include <vector>

#include "tessera/nn/parameter.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/double_options.h"

namespace tessera::testing {

// A parameter "p<key>" with values of its own.
inline nn::Parameter make(const Shape& shape, std::uint64_t key, DType dtype = DType::kF64) {
  nn::Parameter p({.shape = shape, .dtype = dtype, .init = nn::init::normal(0, 1)});
  p.set_name("p" + std::to_string(key));
  p.materialize(default_device());
  p.reset({.value = key});
  return p;
}

inline Tensor random_gradient(const Shape& shape, std::uint64_t key) {
  const Tensor g = Tensor::empty(shape, kDouble);
  random::fill_normal(g, {.value = key + 1000}, random::whole(shape), 0, 1);
  return g;
}

inline std::vector<double> local_values(const nn::Parameter& p) {
  return values(p.local().tensor());
}

// The largest difference; 1e300 where the lengths differ.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return 1e300;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

}  // namespace tessera::testing
