#include "tessera/tests/build/small_kernels.h"

#include <Eigen/Core>
#include <vector>

static_assert(EIGEN_FAST_MATH == 0, "fast maths would give other bits in the tail of an array");

static float sum(const float* x, long n) {
  const std::vector<float> copy(x, x + n);
  return Eigen::Map<const Eigen::VectorXf>(copy.data(), n).sum();
}

extern "C" __attribute__((visibility("default"))) SumEntry tessera_small_kernels() { return sum; }
