#include "tessera/tensor/random.h"

#include <xxhash.h>

#include <numeric>
#include <utility>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/kernels/random.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera::random {
namespace {

void check_box(const char* where, const Tensor& out, const Box& box) {
  ops::check_defined(where, "the output", out);
  bool inside = box.global.ndim() == out.ndim() && box.offset.ndim() == out.ndim();
  for (int d = 0; inside && d < out.ndim(); ++d) {
    inside = box.offset[d] >= 0 && box.offset[d] + out.dim(d) <= box.global[d];
  }
  TESSERA_CHECK(inside, where, "a box of shape {} at {} does not lie inside the global shape {}",
                out.shape().str(), box.offset.str(), box.global.str());
}

void check_floating_box(const char* where, const Tensor& out, const Box& box) {
  check_box(where, out, box);
  ops::check_floating(where, out);
}

void fill(const char* where, const Tensor& out, Key key, const Box& box,
          RandomFillKernel::Args args) {
  args.y = overwrite(out, where);
  args.key = key.value;
  args.position_strides = contiguous_strides(box.global);
  for (int d = 0; d < out.ndim(); ++d)
    args.first_position += box.offset[d] * args.position_strides[d];
  // In the order of positions: neighbouring positions share the words of one draw.
  sort_and_merge_dims(args.y.shape, {&args.position_strides, &args.y.strides});
  launch<RandomFillKernel>(out.device(), args);
}

// Integers below a bound, all equally likely (D. Lemire, "Fast random integer generation in an
// interval", 2019).
class BoundedDraws {
 public:
  explicit BoundedDraws(Key key) : key_(key.value) {}

  std::uint64_t below(std::uint64_t bound) {
    for (;;) {
      const auto product = static_cast<unsigned __int128>(next()) * bound;
      const auto low = static_cast<std::uint64_t>(product);
      if (low >= bound || low >= -bound % bound) return static_cast<std::uint64_t>(product >> 64);
    }
  }

 private:
  std::uint64_t next() {
    const Words words = philox(key_, position_++);
    return (std::uint64_t{words.w[0]} << 32) | words.w[1];
  }

  std::uint64_t key_;
  std::uint64_t position_ = 0;
};

}  // namespace

Key named_key(std::uint64_t seed, std::string_view name) {
  return {XXH64(name.data(), name.size(), seed)};
}

Box whole(const Shape& shape) {
  return {.global = shape, .offset = Shape::filled(shape.ndim(), 0)};
}

void fill_uniform(const Tensor& out, Key key, const Box& box, double low, double high) {
  check_floating_box("fill_uniform", out, box);
  TESSERA_CHECK(low <= high, "fill_uniform", "low {} is above high {}; swap them", low, high);
  fill("fill_uniform", out, key, box,
       {.distribution = Distribution::kUniform, .offset = low, .scale = high - low});
}

void fill_normal(const Tensor& out, Key key, const Box& box, double mean, double stddev) {
  check_floating_box("fill_normal", out, box);
  TESSERA_CHECK(stddev >= 0, "fill_normal", "stddev is {}; it must not be negative", stddev);
  fill("fill_normal", out, key, box,
       {.distribution = Distribution::kNormal, .offset = mean, .scale = stddev});
}

void fill_truncated_normal(const Tensor& out, Key key, const Box& box,
                           const TruncatedNormal& distribution) {
  constexpr const char* kWhere = "fill_truncated_normal";
  const auto& [mean, stddev, low, high] = distribution;
  check_floating_box(kWhere, out, box);
  TESSERA_CHECK(stddev > 0, kWhere, "stddev is {}; it must be above 0", stddev);
  TESSERA_CHECK(low < high, kWhere, "low {} is not below high {}; leave room between them", low,
                high);
  fill(kWhere, out, key, box,
       {.distribution = Distribution::kTruncatedNormal,
        .offset = mean,
        .scale = stddev,
        .low = (low - mean) / stddev,
        .high = (high - mean) / stddev});
}

void fill_bernoulli(const Tensor& out, Key key, const Box& box, double p) {
  check_box("fill_bernoulli", out, box);
  TESSERA_CHECK(p >= 0 && p <= 1, "fill_bernoulli", "p is {}; a probability lies in [0, 1]", p);
  fill("fill_bernoulli", out, key, box, {.distribution = Distribution::kBernoulli, .scale = p});
}

namespace {

// The largest n such that the dtype represents all integers from 0 to n.
double largest_integer(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kU8:
      return 255;
    case DType::kBF16:
      return 0x1p8;
    case DType::kF16:
      return 0x1p11;
    case DType::kF32:
      return 0x1p24;
    case DType::kI32:
      return 0x1p31 - 1;
    case DType::kF64:
    case DType::kI64:
      return 0x1p53;
  }
  return 0;
}

}  // namespace

void fill_integers(const Tensor& out, Key key, const Box& box, std::int64_t low,
                   std::int64_t high) {
  check_box("fill_integers", out, box);
  TESSERA_CHECK(low < high, "fill_integers", "low {} is not below high {}; the range is empty", low,
                high);
  const double largest = largest_integer(out.dtype());
  const double least = out.dtype() == DType::kBool || out.dtype() == DType::kU8 ? 0 : -largest;
  TESSERA_CHECK(static_cast<double>(low) >= least && static_cast<double>(high - 1) <= largest,
                "fill_integers",
                "{} does not hold all whole numbers from {} to {}; use a wider dtype",
                dtype_name(out.dtype()), low, high - 1);
  fill("fill_integers", out, key, box,
       {.distribution = Distribution::kIntegers,
        .offset = static_cast<double>(low),
        .range = static_cast<std::uint64_t>(high - low)});
}

std::vector<std::int64_t> permutation(std::int64_t n, Key key) {
  TESSERA_CHECK(n >= 0, "permutation", "the count is {}; it must not be negative", n);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  BoundedDraws draws(key);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws.below(i)]);
  return order;
}

}  // namespace tessera::random
