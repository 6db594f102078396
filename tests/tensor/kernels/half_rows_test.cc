// Rows of bf16: the kernels read and write contiguous ones in place and compute in f32. So their
// results are those of f32 operands, rounded once.

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

// Below, at and above the lanes, the vectors and the blocks of sums.
constexpr std::int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 33, 784, 1023, 1025, 2100};

Tensor narrow(const Tensor& x) { return cast(x, DType::kBF16); }
Tensor wide(const Tensor& x) { return cast(x, DType::kF32); }
Tensor rows(const Shape& shape, double low = -2, double high = 3) {
  return narrow(spread_tensor<float>(shape, low, high));
}
bool rounds(const Tensor& got, const Tensor& of_f32) {
  return got.dtype() == DType::kBF16 && bits_of(got) == bits_of(narrow(of_f32));
}
bool same(const Tensor& a, const Tensor& b) { return bits_of(a) == bits_of(b); }

TEST_CASE("rows of bf16: softmax and log-softmax, and their derivatives") {
  for (std::int64_t n : kLengths) {
    INFO(n);
    const Tensor x = rows({3, n}, -9, 9), dy = rows({3, n});
    CHECK(rounds(softmax(x), softmax(wide(x))));
    CHECK(rounds(log_softmax(x), log_softmax(wide(x))));
    const Tensor y = softmax(x), log_y = log_softmax(x);
    const Tensor dx = softmax_backward(dy, y), log_dx = log_softmax_backward(dy, log_y);
    CHECK(rounds(dx, softmax_backward(wide(dy), wide(y))));
    CHECK(rounds(log_dx, log_softmax_backward(wide(dy), wide(log_y))));
    for (const Tensor& other : layouts(x)) CHECK(same(softmax(other), y));
    for (const Tensor& other : layouts(dy)) {
      CHECK(same(softmax_backward(other, y), dx));
      CHECK(same(log_softmax_backward(other, log_y), log_dx));
    }
    for (const Tensor& other : layouts(y)) CHECK(same(softmax_backward(dy, other), dx));
  }
}

void check_gradients(const NormGradients& got, const NormGradients& of_f32) {
  CHECK(rounds(got.x, of_f32.x));
  CHECK(same(got.weight, of_f32.weight));
  CHECK(same(got.bias, of_f32.bias));
}

TEST_CASE("rows of bf16: layer and RMS norm, and their derivatives") {
  for (std::int64_t n : kLengths) {
    INFO(n);
    const Tensor x = rows({5, n}), dy = rows({5, n}, -1, 1), weight = rows({n}), bias = rows({n});
    const NormResult got = layer_norm_forward(x, weight, bias),
                     expected = layer_norm_forward(wide(x), wide(weight), wide(bias));
    CHECK(rounds(got.y, expected.y));
    CHECK(same(got.statistics.mean, expected.statistics.mean));
    CHECK(same(got.statistics.rstd, expected.statistics.rstd));
    check_gradients(row_norm_backward(dy, x, weight, got.statistics),
                    row_norm_backward(wide(dy), wide(x), wide(weight), got.statistics));
    const NormResult rms = rms_norm_forward(x, weight);
    CHECK(rounds(rms.y, rms_norm(wide(x), wide(weight))));
    CHECK(rounds(
        row_norm_backward(dy, x, weight, rms.statistics, {.needs_bias = false}).x,
        row_norm_backward(wide(dy), wide(x), wide(weight), rms.statistics, {.needs_bias = false})
            .x));
  }
}

TEST_CASE("rows of bf16: a norm of a sum, and the gradient that is added") {
  for (std::int64_t n : kLengths) {
    INFO(n);
    const Tensor x = rows({5, n}), residual = rows({5, n}, -1, 4), weight = rows({n}),
                 bias = rows({n});
    const AddNormResult got = add_layer_norm_forward(x, residual, weight, bias);
    CHECK(same(got.sum, add(x, residual)));
    CHECK(same(got.y, layer_norm(got.sum, weight, bias)));
    const Tensor dx = row_norm_backward(x, got.sum, weight, got.statistics).x;
    CHECK(same(row_norm_backward(x, got.sum, weight, got.statistics, {}, residual).x,
               add(dx, residual)));
  }
}

TEST_CASE("rows of bf16: group and batch norm, and their derivatives") {
  for (std::int64_t n : kLengths) {
    INFO(n);
    const Shape shape{3, 6, n};
    const Tensor x = rows(shape), dy = rows(shape, -1, 1), weight = rows({6}), bias = rows({6});
    const GroupNormOptions groups{.groups = 2};
    const NormResult got = group_norm_forward(x, weight, bias, groups);
    CHECK(rounds(got.y, group_norm(wide(x), wide(weight), wide(bias), groups)));
    check_gradients(
        row_norm_backward(dy, x, weight, got.statistics, {.groups = 2}),
        row_norm_backward(wide(dy), wide(x), wide(weight), got.statistics, {.groups = 2}));
    const Tensor w = wide(weight), b = wide(bias);
    const BatchNormResult batch = batch_norm_forward(x, w, b);
    CHECK(rounds(batch.y, batch_norm(wide(x), w, b)));
    const BatchNormSums sums = batch_norm_sums(dy, x, batch.statistics),
                        of_f32 = batch_norm_sums(wide(dy), wide(x), batch.statistics);
    CHECK(same(sums.dy, of_f32.dy));
    CHECK(same(sums.dy_normal, of_f32.dy_normal));
    CHECK(rounds(batch_norm_input_gradient(dy, x, w, batch.statistics, sums),
                 batch_norm_input_gradient(wide(dy), wide(x), w, batch.statistics, sums)));
  }
}

// 1, but of one channel a number with these bits.
Tensor one_nan(std::int64_t channels, std::int64_t at, std::uint32_t bits) {
  std::vector<float> values(static_cast<std::size_t>(channels), 1.0f);
  values[static_cast<std::size_t>(at)] = std::bit_cast<float>(bits);
  return Tensor::from_vector(values, {channels});
}
// Whether the elements of [samples, channels, n] are NaN in one channel only.
bool nan_in(const Tensor& y, std::int64_t channel) {
  const Shape shape = y.shape();
  const std::int64_t n = shape.ndim() == 3 ? shape[2] : 1;
  const std::vector<float> values = wide(y).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool here = static_cast<std::int64_t>(i) / n % shape[1] == channel;
    if (std::isnan(values[i]) != here) return false;
  }
  return true;
}

// NaNs that would become 0 or -0 if they were rounded as numbers are.
TEST_CASE("rows of bf16: NaN stays NaN, whatever its bits, in parameters and statistics of f32") {
  for (const std::uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7fff8000u, 0xffff8001u}) {
    for (std::int64_t n : {1, 7, 33}) {
      INFO(bits << " " << n);
      const Tensor x = rows({3, 6, n}), nan = one_nan(6, 4, bits), one = one_nan(6, 4, 0x3f800000u);
      CHECK(nan_in(group_norm(x, nan, one, {.groups = 2}), 4));
      CHECK(nan_in(group_norm(x, one, nan, {.groups = 2}), 4));
      for (const NormStatistics& s : {NormStatistics{nan, one}, NormStatistics{one, nan}}) {
        CHECK(nan_in(batch_norm_apply(x, one, one, s), 4));
        CHECK(nan_in(batch_norm_input_gradient(x, x, one, s, {}), 4));
      }
      CHECK(nan_in(batch_norm_apply(x, nan, one, {one, one}), 4));
      CHECK(nan_in(batch_norm_apply(x, one, nan, {one, one}), 4));
      CHECK(nan_in(batch_norm_input_gradient(x, x, nan, {one, one}, {}), 4));
      for (const BatchNormSums& sums :
           {BatchNormSums{nan, one, full({}, 1.0, {.dtype = DType::kF64})},
            BatchNormSums{one, nan, full({}, 1.0, {.dtype = DType::kF64})}})
        CHECK(nan_in(batch_norm_input_gradient(x, x, one, {one, one}, sums), 4));
    }
    for (std::int64_t n : {5, 6, 33}) {
      INFO(bits << " in rows of " << n);
      const Tensor x = rows({4, n}), nan = one_nan(n, 4, bits), one = one_nan(n, 4, 0x3f800000u);
      CHECK(nan_in(layer_norm(x, nan, one), 4));
      CHECK(nan_in(layer_norm(x, one, nan), 4));
      CHECK(nan_in(rms_norm(x, nan), 4));
      // The statistics of a row.
      const Tensor row = one_nan(4, 2, bits), rest = one_nan(4, 2, 0x3f800000u);
      for (const NormStatistics& s : {NormStatistics{row, rest}, NormStatistics{rest, row}})
        CHECK(nan_in(row_norm_backward(x, x, one, s).x.unsqueeze(0), 2));
      const Tensor all =
          row_norm_backward(x, x, nan, {rest, rest}).x;  // through the mean of the row
      for (float value : wide(all).to_vector<float>()) CHECK(std::isnan(value));
    }
  }
}

}  // namespace
}  // namespace tessera
