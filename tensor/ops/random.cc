#include "tessera/tensor/ops/random.h"

#include <limits>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/random.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/counting.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tensor/random.h"

namespace tessera {
namespace {

random::Key next(const char* operation) { return random::next_key(operation).key(); }

void check_floating_result(const char* where, DType dtype) {
  TESSERA_CHECK(is_floating(dtype), where, "needs a floating dtype, got {}; use randint",
                dtype_name(dtype));
}

}  // namespace

Tensor rand(const Shape& shape, const TensorOptions& options) {
  check_floating_result("rand", options.dtype);
  Tensor out = Tensor::empty(shape, options);
  random::fill_uniform(out, next("rand"), random::whole(shape), 0, 1);
  return out;
}

Tensor normal(double mean, double stddev, const Shape& shape, const TensorOptions& options) {
  check_floating_result("normal", options.dtype);
  TESSERA_CHECK(stddev >= 0, "normal", "stddev is {}; it must not be negative", stddev);
  Tensor out = Tensor::empty(shape, options);
  random::fill_normal(out, next("randn"), random::whole(shape), mean, stddev);
  return out;
}

Tensor randn(const Shape& shape, const TensorOptions& options) {
  check_floating_result("randn", options.dtype);
  return normal(0, 1, shape, options);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               const TensorOptions& options) {
  TESSERA_CHECK(low < high, "randint", "low {} is not below high {}; the range is empty", low,
                high);
  Tensor out = Tensor::empty(shape, options);
  random::fill_integers(out, next("randint"), random::whole(shape), low, high);
  return out;
}

Tensor randperm(std::int64_t n, const TensorOptions& options) {
  TESSERA_CHECK(n >= 0, "randperm", "the count is {}; it must not be negative", n);
  const Tensor order =
      Tensor::from_vector(random::permutation(n, next("randperm")), {n}, options.device);
  return options.dtype == DType::kI64 ? order : cast(order, options.dtype);
}

Tensor bernoulli(const Tensor& p) {
  ops::check_defined("bernoulli", "the tensor", p);
  ops::check_floating("bernoulli", p);
  // Drawn in f32 also for 16-bit probabilities, because 16-bit random numbers would be too coarse.
  const Tensor u =
      Tensor::empty(p.shape(), {.dtype = compute_dtype(p.dtype()), .device = p.device()});
  random::fill_uniform(u, next("bernoulli"), random::whole(p.shape()), 0, 1);
  return cast(lt(u, p), p.dtype());
}

namespace {

constexpr const char* kMultinomial = "multinomial";

[[noreturn]] void throw_bad_weights(std::int64_t, std::int64_t position, std::int64_t, int) {
  throw_error<InvalidArgument>(
      kMultinomial,
      "sample {} found no weight to choose; weights must be finite, not negative, and positive in "
      "enough places",
      position);
}

// The first index whose running sum exceeds a uniform part of the whole sum; n: none, as the sum is
// 0 or not finite. The product is rounded below the sum, so that a weight of 0 is never chosen.
Tensor drawn_again(const Tensor& weights, const Tensor& u) {
  const Tensor sums = cumsum(weights, -1);
  const Tensor whole = sums.narrow(-1, weights.dim(-1) - 1, 1);
  return searchsorted(sums, mul(u, whole), {.right = true});
}

// The largest of weight / e, e exponential: the indices of the first events of processes with
// these rates. n: no event.
Tensor drawn_once(const Tensor& weights, const Tensor& u, std::int64_t samples) {
  const Tensor e = maximum(neg(log1p(neg(u))), std::numeric_limits<double>::min());
  const ValuesAndIndices first = topk(div(weights, e), samples, -1);
  return where(gt(first.values, 0), first.indices, weights.dim(-1));
}

}  // namespace

Tensor multinomial(const Tensor& weights, std::int64_t samples, const MultinomialOptions& options) {
  ops::check_defined(kMultinomial, "the tensor", weights);
  ops::check_floating(kMultinomial, weights);
  TESSERA_CHECK(weights.ndim() >= 1 && weights.dim(-1) > 0, kMultinomial,
                "needs weights [..., n], n >= 1, got shape {}", weights.shape().str());
  const std::int64_t n = weights.dim(-1);
  TESSERA_CHECK(samples >= 0 && (options.replacement || samples <= n), kMultinomial,
                "cannot draw {} samples from {} weights {} replacement", samples, n,
                options.replacement ? "with" : "without");
  const Tensor wide = cast(weights, DType::kF64);
  const Tensor valid = masked_fill(wide, logical_not(logical_and(ge(wide, 0), isfinite(wide))),
                                   std::numeric_limits<double>::quiet_NaN());
  const Shape shape = weights.shape().with(weights.ndim() - 1, options.replacement ? samples : n);
  const Tensor u = Tensor::empty(shape, {.dtype = DType::kF64, .device = weights.device()});
  random::fill_uniform(u, next(kMultinomial), random::whole(shape), 0, 1);
  const Tensor index = options.replacement ? drawn_again(valid, u) : drawn_once(valid, u, samples);
  // Checks: n is no index.
  const Tensor all = arange(n, {.dtype = DType::kI64, .device = weights.device()});
  const Tensor line = index.view({index.numel()});
  return ops::gathered(all, {.dim = 0, .index = line}, throw_bad_weights).view(index.shape());
}

Tensor rand_like(const Tensor& x) {
  ops::check_defined("rand_like", "the tensor", x);
  check_floating_result("rand_like", x.dtype());
  return rand(x.shape(), x.options());
}

Tensor randn_like(const Tensor& x) {
  ops::check_defined("randn_like", "the tensor", x);
  check_floating_result("randn_like", x.dtype());
  return randn(x.shape(), x.options());
}

namespace {

void check_dropout(const char* where, const Tensor& x, double p, const random::Box& box) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  TESSERA_CHECK(p >= 0 && p <= 1, where, "p is {}; it must lie in [0, 1]", p);
  bool inside = box.global.ndim() == x.ndim() && box.offset.ndim() == x.ndim();
  for (int d = 0; inside && d < x.ndim(); ++d)
    inside = box.offset[d] >= 0 && box.offset[d] + x.dim(d) <= box.global[d];
  TESSERA_CHECK(inside, where, "a box of shape {} at {} does not lie inside the global shape {}",
                x.shape().str(), box.offset.str(), box.global.str());
}

double scale_of_kept(double p) { return p < 1 ? 1 / (1 - p) : 0; }

// Writes `mask` if it is defined.
Tensor drop(const Tensor& x, double p, random::Key key, const random::Box& box,
            const Tensor& mask) {
  const Tensor out = Tensor::empty(x.shape(), x.options());
  DropoutKernel::Args args{.x = read(x),
                           .y = write(out),
                           .key = key.value,
                           .position_strides = contiguous_strides(box.global),
                           .p = p,
                           .scale = scale_of_kept(p)};
  if (mask.defined()) args.mask = write(mask);
  for (int d = 0; d < x.ndim(); ++d)
    args.first_position += box.offset[d] * args.position_strides[d];
  launch<DropoutKernel>(x.device(), std::move(args));
  return out;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, random::Key key, const random::Box& box) {
  check_dropout("dropout", x, p, box);
  return drop(x, p, key, box, {});
}

DropoutResult dropout_with_mask(const Tensor& x, double p, random::Key key,
                                const random::Box& box) {
  check_dropout("dropout", x, p, box);
  DropoutResult result;
  if (!x.device().is_cuda())
    result.mask =
        Tensor::empty({mask_bytes(x.numel())}, {.dtype = DType::kU8, .device = x.device()});
  result.output = drop(x, p, key, box, result.mask);
  return result;
}

Tensor dropout_backward(const Tensor& dy, const Tensor& mask, double p, random::Key key,
                        const random::Box& box) {
  constexpr const char* kWhere = "dropout_backward";
  check_dropout(kWhere, dy, p, box);
  if (!mask.defined()) return drop(dy, p, key, box, {});
  ops::check_same_device(kWhere, dy, mask);
  TESSERA_CHECK(mask.dtype() == DType::kU8 && mask.shape() == Shape{mask_bytes(dy.numel())} &&
                    mask.is_contiguous() && !dy.device().is_cuda(),
                kWhere, "the mask is {} of shape {} on {}; pass the one of dropout_with_mask",
                dtype_name(mask.dtype()), mask.shape().str(), mask.device().str());
  const Tensor out = Tensor::empty(dy.shape(), dy.options());
  launch<MaskedScaleKernel>(
      dy.device(), {.x = read(dy), .mask = read(mask), .y = write(out), .scale = scale_of_kept(p)});
  return out;
}

}  // namespace tessera
