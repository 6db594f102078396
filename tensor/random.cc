#include "tessera/tensor/random.h"

#include <xxhash.h>

#include <numeric>
#include <utility>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/random_fill.h"
#include "tessera/tensor/kernels/random_math.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/op_checks.h"

namespace tessera::random {
namespace {

void check_box(const char* where, const Tensor& out, const Box& box) {
  ops::check_defined(where, "the output", out);
  ops::check_floating(where, out);
  bool inside = box.global.ndim() == out.ndim() && box.offset.ndim() == out.ndim();
  for (int d = 0; inside && d < out.ndim(); ++d) {
    inside = box.offset[d] >= 0 && box.offset[d] + out.dim(d) <= box.global[d];
  }
  TESSERA_CHECK(inside, where, "a box of shape {} at {} does not lie inside the global shape {}",
                out.shape().str(), box.offset.str(), box.global.str());
}

void fill(const Tensor& out, Key key, const Box& box, RandomFillKernel::Args args) {
  args.y = write(out);
  args.key = key.value;
  args.position_strides = contiguous_strides(box.global);
  for (int d = 0; d < out.ndim(); ++d)
    args.first_position += box.offset[d] * args.position_strides[d];
  // In the order of positions: neighbours share the words of one draw.
  sort_and_merge_dims(args.y.shape, {&args.position_strides, &args.y.strides});
  launch<RandomFillKernel>(out.device(), args);
}

// Numbers below a bound, all equally likely (D. Lemire, "Fast random integer generation in an
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
  check_box("fill_uniform", out, box);
  TESSERA_CHECK(low <= high, "fill_uniform", "low {} is above high {}; swap them", low, high);
  fill(out, key, box, {.distribution = Distribution::kUniform, .offset = low, .scale = high - low});
}

void fill_normal(const Tensor& out, Key key, const Box& box, double mean, double stddev) {
  check_box("fill_normal", out, box);
  TESSERA_CHECK(stddev >= 0, "fill_normal", "stddev is {}; it must not be negative", stddev);
  fill(out, key, box, {.distribution = Distribution::kNormal, .offset = mean, .scale = stddev});
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
