// Rows of bf16: the kernels read and write contiguous ones in place and compute in f32. So their
// results are those of f32 operands, rounded once.

#include <catch2/catch.hpp>
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

}  // namespace
}  // namespace tessera
