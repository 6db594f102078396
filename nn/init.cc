#include "tessera/nn/init.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::nn::init {

Initializer constant(double value) {
  return [value](const Tensor& out, random::Key, const random::Box&) { fill_(out, value); };
}

Initializer zeros() { return constant(0); }

Initializer ones() { return constant(1); }

Initializer uniform(double low, double high) {
  TESSERA_CHECK(low <= high, "nn.init.uniform", "expected low <= high, got {} and {}", low, high);
  return [low, high](const Tensor& out, random::Key key, const random::Box& box) {
    random::fill_uniform(out, key, box, low, high);
  };
}

Initializer normal(double mean, double stddev) {
  TESSERA_CHECK(stddev >= 0, "nn.init.normal", "expected stddev >= 0, got {}", stddev);
  return [mean, stddev](const Tensor& out, random::Key key, const random::Box& box) {
    random::fill_normal(out, key, box, mean, stddev);
  };
}

Initializer trunc_normal(const random::TruncatedNormal& distribution) {
  TESSERA_CHECK(distribution.low < distribution.high && distribution.stddev > 0,
                "nn.init.trunc_normal",
                "expected low < high and stddev > 0, got low = {}, high = {}, stddev = {}",
                distribution.low, distribution.high, distribution.stddev);
  return [distribution](const Tensor& out, random::Key key, const random::Box& box) {
    random::fill_truncated_normal(out, key, box, distribution);
  };
}

}  // namespace tessera::nn::init
