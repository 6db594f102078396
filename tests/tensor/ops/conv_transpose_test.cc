// Transposed convolution against a plain loop that scatters; inputs without a batch; errors.
#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/pool.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera::testing {
namespace {

using naive::Array;
using naive::Index;

// Every element of x adds its part of y where the kernel puts it.
Array scattered(const Array& x, const Array& w, const Array& bias,
                const ConvTranspose2dOptions& o) {
  const auto extent = [](std::int64_t in, std::int64_t k, std::int64_t s, std::int64_t p,
                         std::int64_t more,
                         std::int64_t d) { return (in - 1) * s - 2 * p + d * (k - 1) + more + 1; };
  const std::int64_t channels = w.shape[1] * o.groups;
  Array y = naive::filled({x.shape[0], channels,
                           extent(x.shape[2], w.shape[2], o.stride.height, o.padding.height,
                                  o.output_padding.height, o.dilation.height),
                           extent(x.shape[3], w.shape[3], o.stride.width, o.padding.width,
                                  o.output_padding.width, o.dilation.width)},
                          0);
  naive::for_each_index(x.shape, [&](const Index& at) {
    naive::for_each_index({w.shape[1], w.shape[2], w.shape[3]}, [&](const Index& k) {
      const std::int64_t group = at[1] / (x.shape[1] / o.groups),
                         row =
                             at[2] * o.stride.height - o.padding.height + k[1] * o.dilation.height,
                         column =
                             at[3] * o.stride.width - o.padding.width + k[2] * o.dilation.width;
      if (row < 0 || row >= y.shape[2] || column < 0 || column >= y.shape[3]) return;
      y.at({at[0], group * w.shape[1] + k[0], row, column}) +=
          x.at(at) * w.at({at[1], k[0], k[1], k[2]});
    });
  });
  naive::for_each_index(y.shape, [&](const Index& at) { y.at(at) += bias.at({at[1]}); });
  return y;
}

struct Case {
  Shape x, weight;
  ConvTranspose2dOptions options = {};
};

const Case kCases[] = {
    {{2, 3, 4, 5}, {3, 2, 3, 2}},
    {{1, 4, 3, 2}, {4, 3, 2, 3}, {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}}},
    {{2, 4, 3, 3}, {4, 2, 3, 3}, {.stride = 2, .padding = 1, .groups = 2, .dilation = {1, 2}}},
    // As many places more as a stride: x gets zeros at its end.
    {{2, 2, 3, 4}, {2, 3, 2, 3}, {.padding = 1, .output_padding = {1, 2}, .dilation = {2, 3}}},
    {{1, 2, 1, 3}, {2, 1, 1, 2}, {.stride = {1, 2}, .output_padding = {0, 3}, .dilation = {1, 5}}},
    {{0, 2, 3, 3}, {2, 1, 2, 2}}};

TEST_CASE("conv_transpose2d adds each element, times the kernel, where it falls") {
  for (const Case& c : kCases) {
    INFO(c.x.str() << " " << c.weight.str());
    const Tensor x = spread_tensor<double>(c.x), w = spread_tensor<double>(c.weight),
                 b = spread_tensor<double>({c.weight[1] * c.options.groups});
    const Array expected =
        scattered(naive::array_of(x), naive::array_of(w), naive::array_of(b), c.options);
    for (const Tensor& layout : layouts(x))
      CHECK(naive::is_close(conv_transpose2d(layout, w, b, c.options), expected, 1e-13, 1e-13));
    CHECK(naive::is_close(conv_transpose2d(x, layouts(w)[2], layouts(b)[3], c.options), expected,
                          1e-13, 1e-13));
    const Array none = scattered(naive::array_of(x), naive::array_of(w),
                                 naive::filled({expected.shape[1]}, 0), c.options);
    CHECK(naive::is_close(conv_transpose2d(x, w, {}, c.options), none, 1e-13, 1e-13));
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Tensor y = conv_transpose2d(cast(x, dtype), cast(w, dtype), cast(b, dtype), c.options);
      CHECK(y.dtype() == dtype);
      CHECK(naive::is_close(y, expected, dtype == DType::kF32 ? 1e-5 : 0.05,
                            dtype == DType::kF32 ? 1e-5 : 0.2));
    }
  }
}

TEST_CASE("conv_transpose1d is that of height 1") {
  const ConvTranspose1dOptions o{
      .stride = 3, .padding = 1, .output_padding = 2, .groups = 2, .dilation = 2};
  const Tensor x = spread_tensor<double>({2, 4, 5}), w = spread_tensor<double>({4, 3, 3}),
               b = spread_tensor<double>({6});
  Array expected = scattered(naive::array_of(x.unsqueeze(2)), naive::array_of(w.unsqueeze(2)),
                             naive::array_of(b), o.as_2d());
  expected.shape.erase(expected.shape.begin() + 2);
  CHECK(naive::is_close(conv_transpose1d(x, w, b, o), expected, 1e-13, 1e-13));
  const Tensor more = conv_transpose1d(x, w, b, {.output_padding = 1, .groups = 2, .dilation = 2});
  CHECK(more.shape() == Shape{2, 6, 10});
}

TEST_CASE("windows of a sample without a batch are those of a batch of one") {
  const Tensor image = spread_tensor<float>({4, 7, 6}), line = spread_tensor<float>({4, 7});
  const Tensor w = spread_tensor<float>({4, 2, 3, 3}), v = spread_tensor<float>({4, 2, 3}),
               b = spread_tensor<float>({4}), c = spread_tensor<float>({2});
  const auto check = [](const Tensor& x, auto operation) {
    const Tensor one = operation(x), batch = operation(x.unsqueeze(0));
    CHECK(one.ndim() == x.ndim());
    CHECK(one.unsqueeze(0).shape() == batch.shape());
    CHECK(bits_of(one) == bits_of(batch));
  };
  check(image, [&](const Tensor& x) { return conv2d(x, w, b, {.groups = 2}); });
  check(line, [&](const Tensor& x) { return conv1d(x, v, b, {.groups = 2}); });
  check(image, [&](const Tensor& x) { return conv_transpose2d(x, w, c); });
  check(line, [&](const Tensor& x) { return conv_transpose1d(x, v, c); });
  check(image, [](const Tensor& x) { return max_pool2d(x, {.kernel = 2}).output; });
  check(image, [](const Tensor& x) { return max_pool2d(x, {.kernel = 2}).indices; });
  check(line, [](const Tensor& x) { return max_pool1d(x, {.kernel = 2}).output; });
  check(image, [](const Tensor& x) { return avg_pool2d(x, {.kernel = 2}); });
  check(line, [](const Tensor& x) { return avg_pool1d(x, {.kernel = 2}); });
  check(image, [](const Tensor& x) { return adaptive_max_pool2d(x, 3).output; });
  check(line, [](const Tensor& x) { return adaptive_max_pool1d(x, 3).indices; });
  check(image, [](const Tensor& x) { return adaptive_avg_pool2d(x, 3); });
  check(line, [](const Tensor& x) { return adaptive_avg_pool1d(x, 3); });
}

TEST_CASE("conv_transpose: errors") {
  const Tensor x = zeros({2, 4, 5, 6}), w = zeros({4, 3, 3, 3});
  const auto message = [&](const Tensor& weight, const Tensor& bias,
                           const ConvTranspose2dOptions& options) {
    return thrown<InvalidArgument>([&] { conv_transpose2d(x, weight, bias, options); });
  };
  CHECK(message(w, {}, {.stride = 0}) ==
        "[conv_transpose2d] stride 0 x 0, dilation 1 x 1 and groups 1 must be at least 1");
  CHECK(message(w, {}, {.stride = 2, .output_padding = 2}) ==
        "[conv_transpose2d] output_padding is 2; it must be below the stride 2 or the dilation 1, "
        "and not negative");
  CHECK(message(w, {}, {.padding = {0, 4}}) ==
        "[conv_transpose2d] an input of 6 becomes an output of 0; both must be at least 1");
  CHECK(message(zeros({3, 3, 3, 3}), {}, {}) ==
        "[conv_transpose2d] x [2, 4, 5, 6] and weight [3, 3, 3, 3] do not fit 1 groups: weight's "
        "dim 0 must be x's channels, a multiple of groups; no extent of weight may be 0");
  CHECK(message(w, zeros({3}), {.groups = 2}) ==
        "[conv_transpose2d] bias has shape [3], expected [6]");
  CHECK(thrown<InvalidArgument>([&] { conv_transpose1d(x, w, {}); }) ==
        "[conv_transpose1d] needs x and weight of 3 dims, or x without N, got [2, 4, 5, 6] and [4, "
        "3, 3, 3]");
}

}  // namespace
}  // namespace tessera::testing
