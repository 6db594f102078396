#include "tessera/nn/init.h"

#include <algorithm>
#include <cmath>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"

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

namespace {

// Initial values that depend on the shape of the whole parameter.
struct Fans {
  double in, out;
};

Fans fans(const char* where, const Shape& shape) {
  TESSERA_CHECK(shape.ndim() >= 2, where,
                "a parameter of shape {} has no fan; it needs at least 2 dims", shape.str());
  double kernel = 1;
  for (int d = 2; d < shape.ndim(); ++d) kernel *= static_cast<double>(shape[d]);
  return {.in = static_cast<double>(shape[1]) * kernel,
          .out = static_cast<double>(shape[0]) * kernel};
}

void check_gain(const char* where, double gain) {
  TESSERA_CHECK(gain >= 0, where, "gain is {}; it must not be negative", gain);
}

double kaiming_stddev(const char* where, const KaimingOptions& options, const Shape& shape) {
  const Fans both = fans(where, shape);
  return calculate_gain(options.nonlinearity, options.negative_slope) /
         std::sqrt(options.mode == FanMode::kFanIn ? both.in : both.out);
}

double xavier_stddev(const char* where, double gain, const Shape& shape) {
  const Fans both = fans(where, shape);
  return gain * std::sqrt(2 / (both.in + both.out));
}

// So wide that the deviation is `stddev`.
void fill_uniform_of(double stddev, const Tensor& out, random::Key key, const random::Box& box) {
  const double bound = std::sqrt(3.0) * stddev;
  random::fill_uniform(out, key, box, -bound, bound);
}

// How many rows are made orthogonal to all before them by one product of matrices.
constexpr std::int64_t kBlock = 64;

// rows -= what of them lies in the span of `before`, whose rows are orthonormal. Twice, because the
// first leaves the rounding errors of the whole where little remains.
void remove_span(const Tensor& rows, const Tensor& before) {
  if (before.dim(0) == 0) return;
  for (int pass = 0; pass < 2; ++pass) {
    matmul_into(rows, matmul(rows, before.transpose(0, 1)), before, {.alpha = -1, .beta = 1});
  }
}

// Gram-Schmidt, in blocks: a [m, n] with m <= n.
void orthonormalize_rows(const Tensor& a) {
  for (std::int64_t first = 0; first < a.dim(0); first += kBlock) {
    const Tensor block = a.slice(0, first, std::min(a.dim(0), first + kBlock));
    remove_span(block, a.slice(0, 0, first));
    for (std::int64_t i = 0; i < block.dim(0); ++i) {
      const Tensor row = block.slice(0, i, i + 1);
      remove_span(row, block.slice(0, 0, i));
      mul_(row, rsqrt(sum_of_squares(row)));
    }
  }
}

}  // namespace

double calculate_gain(Nonlinearity nonlinearity, double negative_slope) {
  switch (nonlinearity) {
    case Nonlinearity::kLinear:
    case Nonlinearity::kSigmoid:
      return 1;
    case Nonlinearity::kTanh:
      return 5.0 / 3;
    case Nonlinearity::kRelu:
      return std::sqrt(2.0);
    case Nonlinearity::kLeakyRelu:
      return std::sqrt(2 / (1 + negative_slope * negative_slope));
    case Nonlinearity::kSelu:
      return 0.75;
  }
  return 1;
}

Initializer kaiming_uniform(const KaimingOptions& options) {
  return [options](const Tensor& out, random::Key key, const random::Box& box) {
    fill_uniform_of(kaiming_stddev("nn.init.kaiming_uniform", options, box.global), out, key, box);
  };
}

Initializer kaiming_normal(const KaimingOptions& options) {
  return [options](const Tensor& out, random::Key key, const random::Box& box) {
    random::fill_normal(out, key, box, 0,
                        kaiming_stddev("nn.init.kaiming_normal", options, box.global));
  };
}

Initializer xavier_uniform(double gain) {
  check_gain("nn.init.xavier_uniform", gain);
  return [gain](const Tensor& out, random::Key key, const random::Box& box) {
    fill_uniform_of(xavier_stddev("nn.init.xavier_uniform", gain, box.global), out, key, box);
  };
}

Initializer xavier_normal(double gain) {
  check_gain("nn.init.xavier_normal", gain);
  return [gain](const Tensor& out, random::Key key, const random::Box& box) {
    random::fill_normal(out, key, box, 0, xavier_stddev("nn.init.xavier_normal", gain, box.global));
  };
}

Initializer orthogonal(double gain) {
  return [gain](const Tensor& out, random::Key key, const random::Box& box) {
    const Shape& global = box.global;
    const Fans both = fans("nn.init.orthogonal", global);
    const Shape matrix{global[0], static_cast<std::int64_t>(both.in)};
    const Tensor whole = Tensor::empty(matrix, {.dtype = DType::kF64, .device = out.device()});
    random::fill_normal(whole, key, random::whole(matrix), 0, 1);
    orthonormalize_rows(matrix[0] <= matrix[1] ? whole : whole.transpose(0, 1));
    Tensor part = whole.view(global);
    for (int d = 0; d < global.ndim(); ++d) {
      part = part.slice(d, box.offset[d], box.offset[d] + out.dim(d));
    }
    axpby_(out, part, {.alpha = gain});
  };
}

Initializer eye() {
  return [](const Tensor& out, random::Key, const random::Box& box) {
    TESSERA_CHECK(out.ndim() == 2, "nn.init.eye", "needs a parameter of 2 dims, got shape {}",
                  box.global.str());
    const TensorOptions whole_numbers{.dtype = DType::kI64, .device = out.device()};
    const Tensor row = add(arange(out.dim(0), whole_numbers).unsqueeze(1), box.offset[0]);
    const Tensor column = add(arange(out.dim(1), whole_numbers), box.offset[1]);
    copy_(out, eq(row, column));
  };
}

}  // namespace tessera::nn::init
