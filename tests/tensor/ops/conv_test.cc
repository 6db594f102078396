// Convolution and its derivatives: values against plain loops and PyTorch, layouts, threads,
// memory, errors.
#include "tessera/tensor/ops/conv.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

struct Case {
  Shape x, weight;
  Conv2dOptions options;
};

// Calls body(y index, weight index, x index) for every product of a convolution.
template <class Body>
void for_each_product(const Case& c, const Shape& y, const Body& body) {
  const Shape &x = c.x, &w = c.weight;
  const Conv2dOptions& o = c.options;
  for (std::int64_t at = 0; at < y.numel() * w[1] * w[2] * w[3]; ++at) {
    std::int64_t rest = at;
    const auto next = [&](std::int64_t extent) {
      const std::int64_t index = rest % extent;
      rest /= extent;
      return index;
    };
    const std::int64_t b = next(w[3]), a = next(w[2]), ch = next(w[1]), j = next(y[3]),
                       i = next(y[2]), out = next(y[1]), n = rest;
    const std::int64_t row = i * o.stride.height - o.padding.height + a * o.dilation.height,
                       column = j * o.stride.width - o.padding.width + b * o.dilation.width,
                       channel = out / (w[0] / o.groups) * w[1] + ch;
    if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
    body(static_cast<std::size_t>(((n * y[1] + out) * y[2] + i) * y[3] + j),
         static_cast<std::size_t>(((out * w[1] + ch) * w[2] + a) * w[3] + b),
         static_cast<std::size_t>(((n * x[1] + channel) * x[2] + row) * x[3] + column));
  }
}

std::vector<double> f64(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

// The largest |got - expected|, relative to the largest expected element.
double distance(const Tensor& got, const std::vector<double>& expected) {
  const auto values = f64(got);
  REQUIRE(values.size() == expected.size());
  double worst = 0, largest = 0.1;
  for (double x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < values.size(); ++i)
    worst = std::max(worst, std::abs(values[i] - expected[i]));
  return worst / largest;
}

void check_case(const Case& c, DType dtype, double tolerance) {
  const auto make = [&](const Shape& shape) {
    return cast(spread_tensor<double>(shape, -1, 1), dtype);
  };
  const Tensor x = make(c.x), weight = make(c.weight), bias = make({c.weight[0]});
  const Tensor y = conv2d(x, weight, bias, c.options);
  INFO(dtype_name(dtype) << " x " << c.x.str() << " weight " << c.weight.str() << " y "
                         << y.shape().str());
  const Tensor dy = make(y.shape());
  const auto xs = f64(x), ws = f64(weight), bs = f64(bias), ds = f64(dy);
  std::vector<double> ys(ds.size()), dx(xs.size()), dw(ws.size());
  const std::int64_t plane = y.dim(2) * y.dim(3);
  for (std::size_t i = 0; i < ys.size(); ++i)
    ys[i] = bs[static_cast<std::size_t>(static_cast<std::int64_t>(i) / plane % y.dim(1))];
  for_each_product(c, y.shape(), [&](std::size_t o, std::size_t w, std::size_t in) {
    ys[o] += ws[w] * xs[in];
    dw[w] += ds[o] * xs[in];
    dx[in] += ds[o] * ws[w];
  });
  CHECK(y.dtype() == dtype);
  CHECK(distance(y, ys) <= tolerance);
  CHECK(distance(conv_backward_input(dy, weight, c.x, c.options), dx) <= tolerance);
  CHECK(distance(conv_backward_weight(dy, x, c.weight, c.options), dw) <= tolerance);
  const Tensor sum = clone(weight);
  conv_backward_weight_into(sum, -0.5, dy, x, c.options);
  for (std::size_t i = 0; i < dw.size(); ++i) dw[i] -= 0.5 * ws[i];
  CHECK(distance(sum, dw) <= tolerance);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {{2, 3, 5, 7}, {4, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}}},
      {{3, 4, 9, 8}, {6, 2, 3, 3}, {.stride = 2, .padding = 3, .dilation = {2, 1}, .groups = 2}},
      {{2, 5, 6, 6}, {10, 1, 2, 3}, {.padding = 1, .groups = 5}},
      {{1, 2, 3, 4}, {3, 2, 3, 4}, {}},                           // one output
      {{2, 1, 4, 4}, {1, 1, 1, 1}, {.stride = 3}},                // inputs that no output reads
      {{1, 1, 2, 2}, {1, 1, 2, 2}, {.stride = 5, .padding = 4}},  // outputs that read no input
      {{7, 40, 3, 5}, {33, 40, 3, 3}, {.padding = 1}},            // a depth above one piece
      {{3, 2, 7, 1}, {3, 2, 1, 1}, {.stride = {1, 3}}},           // pointwise except for a stride
      {{3, 5, 9, 11}, {3, 5, 1, 1}, {}},                          // pointwise
      {{3, 5, 13, 21}, {4, 5, 1, 1}, {}},                         // images of two pieces
      {{2, 6, 12, 12}, {4, 3, 1, 1}, {.groups = 2}},              // images of half a piece
      {{2, 300, 1, 130}, {3, 300, 1, 1}, {}},                     // a depth above one piece
      {{2, 3, 130, 1}, {270, 3, 1, 1}, {}},                       // channels above one piece
      {{300, 2, 1, 1}, {3, 2, 1, 1}, {}},                         // positions across images
      {{2, 1, 1, 700}, {270, 1, 1, 5}, {.stride = {1, 2}}},       // channels above one piece
      {{2, 20, 11, 13}, {9, 20, 5, 5}, {.stride = {1, 3}, .padding = 2}}};
  return all;
}

TEST_CASE("conv: odd sizes and every option, against plain loops") {
  for (const Case& c : cases()) {
    check_case(c, DType::kF64, 1e-13);
    check_case(c, DType::kF32, 3e-6);
  }
}

TEST_CASE("conv: 16-bit dtypes are computed in f32 and rounded once") {
  for (const Case& c : cases()) {
    check_case(c, DType::kBF16, 5e-3);
    check_case(c, DType::kF16, 6e-4);
  }
}

TEST_CASE("conv: PyTorch's values") {
  for (const ReferenceCase& c : load_reference("conv")) {
    INFO(c.name);
    const auto both = [&](const char* key) {
      const auto list = c.list(key);
      return Size2d(list.front(), list.back());
    };
    const Tensor &x = c.tensor("x"), &w = c.tensor("weight"), &dy = c.tensor("dy");
    const Tensor bias = c.optional("bias");
    Conv2dOptions options{.stride = both("stride"),
                          .padding = both("padding"),
                          .dilation = both("dilation"),
                          .groups = static_cast<std::int64_t>(c.number("groups"))};
    if (c.text("function") == "conv1d") {
      const Conv1dOptions line{.stride = options.stride.width,
                               .padding = options.padding.width,
                               .dilation = options.dilation.width,
                               .groups = options.groups};
      CHECK(all_close(conv1d(x, w, bias, line), c.tensor("y")));
      options = line.as_2d();
    } else {
      CHECK(all_close(conv2d(x, w, bias, options), c.tensor("y")));
    }
    CHECK(all_close(conv_backward_input(dy, w, x.shape(), options), c.tensor("dx")));
    CHECK(all_close(conv_backward_weight(dy, x, w.shape(), options), c.tensor("dweight")));
  }
}

TEST_CASE("conv: no samples") {
  const Tensor x = zeros({0, 2, 4, 4}), w = spread_tensor<float>({3, 2, 2, 2});
  const Tensor y = conv2d(x, w, zeros({3}));
  CHECK(y.shape() == Shape{0, 3, 3, 3});
  CHECK(conv_backward_input(y, w, x.shape(), {}).shape() == x.shape());
  CHECK(all_equal(conv_backward_weight(y, x, w.shape(), {}), zeros(w.shape())));
  const Tensor kept = clone(w);
  conv_backward_weight_into(kept, 1, y, x, {});
  CHECK(all_equal(kept, w));
}

template <class T>
std::vector<T> bits_of(const Tensor& x, const Tensor& weight, const Tensor& dy,
                       const Conv2dOptions& options) {
  std::vector<T> out;
  for (const Tensor& r :
       {conv2d(x, weight, {}, options), conv_backward_input(dy, weight, x.shape(), options),
        conv_backward_weight(dy, x, weight.shape(), options)}) {
    const auto values = r.to_vector<T>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

template <class T>
void check_bits(const Tensor& x, const Tensor& w, const Tensor& dy, const Conv2dOptions& options) {
  const auto expected = bits_of<T>(x, w, dy, options);
  CHECK(same_for_any_threads([&] { return bits_of<T>(x, w, dy, options); }));
  const auto xs = layouts(x), ws = layouts(w), ds = layouts(dy);
  for (std::size_t i = 0; i < xs.size(); ++i)
    CHECK(same_bits(expected, bits_of<T>(xs[i], ws[i], ds[i], options)));
}

template <class T>
void check_bits() {
  check_bits<T>(spread_tensor<T>({5, 30, 13, 17}), spread_tensor<T>({8, 15, 3, 3}),
                spread_tensor<T>({5, 8, 7, 17}), {.stride = {2, 1}, .padding = 1, .groups = 2});
  check_bits<T>(spread_tensor<T>({3, 6, 13, 21}), spread_tensor<T>({8, 3, 1, 1}),
                spread_tensor<T>({3, 8, 13, 21}), {.groups = 2});
}

TEST_CASE("conv: equal bits for any number of threads and every layout") {
  check_bits<float>();
  check_bits<double>();
}

TEST_CASE("conv: pointwise, with channels and images that share memory") {
  const Tensor w = spread_tensor<float>({5, 3, 1, 1});
  const Tensor x = spread_tensor<float>({1, 1, 12, 13}), dy = spread_tensor<float>({1, 1, 12, 13});
  const Tensor xs = x.expand({2, 3, 12, 13}), ds = dy.expand({2, 5, 12, 13});
  CHECK(all_equal(conv2d(xs, w), conv2d(clone(xs), w)));
  CHECK(all_equal(conv_backward_input(ds, w, xs.shape(), {}),
                  conv_backward_input(clone(ds), w, xs.shape(), {})));
  CHECK(all_equal(conv_backward_weight(ds, xs, w.shape(), {}),
                  conv_backward_weight(clone(ds), clone(xs), w.shape(), {})));
}

std::int64_t workspace_peak(std::int64_t images, std::int64_t size) {
  return with_threads(2, [=] {
    const TensorOptions null{.device = kNull};
    const Tensor x = zeros({images, 64, size, size}, null), w = zeros({64, 64, 3, 3}, null);
    const Tensor y = conv2d(x, w, {}, {.padding = 1});
    conv_backward_input(y, w, x.shape(), {.padding = 1});
    conv_backward_weight(y, x, w.shape(), {.padding = 1});
    return current_rank_context()->memory().peak()[MemoryCategory::kWorkspace];
  });
}

TEST_CASE("conv: scratch is bounded, whatever the number and the size of images") {
  CHECK(workspace_peak(8, 64) == workspace_peak(800, 64));
  CHECK(workspace_peak(2, 1024) <= (std::int64_t{64} << 20));
}

TEST_CASE("conv: errors") {
  const Tensor x = zeros({2, 4, 5, 6}), w = zeros({6, 2, 3, 3});
  const auto message = [](const Tensor& a, const Tensor& b, const Tensor& bias,
                          const Conv2dOptions& options) {
    return thrown<InvalidArgument>([&] { conv2d(a, b, bias, options); });
  };
  const Conv2dOptions two{.groups = 2};
  CHECK(message({}, w, {}, two) == "[conv2d] the first operand is undefined; pass a tensor");
  CHECK(message(x, cast(w, DType::kF64), {}, two) ==
        "[conv2d] operands have dtypes f32 and f64; cast one of them");
  CHECK(message(x, zeros({6, 2, 3, 3}, {.device = kNull}), {}, two) ==
        "[conv2d] operands are on " + default_device().str() +
            " and null; move them to one device");
  CHECK(message(arange(3), arange(3), {}, two) ==
        "[conv2d] needs a floating dtype, got i64; cast it first");
  CHECK(message(x, w.select(0, 0), {}, two) ==
        "[conv2d] needs x and weight of 4 dims, or x without N, got [2, 4, 5, 6] and [2, 3, 3]");
  CHECK(thrown<InvalidArgument>([&] { conv1d(x, w, {}); }) ==
        "[conv1d] needs x and weight of 3 dims, or x without N, got [2, 4, 5, 6] and [6, 2, 3, 3]");
  CHECK(message(x, w, {}, {}) ==
        "[conv2d] x [2, 4, 5, 6] and weight [6, 2, 3, 3] do not fit 1 groups: x must have groups "
        "times as many channels as weight's dim 1, and weight's dim 0 be a multiple of groups; no "
        "extent of weight may be 0");
  CHECK(message(x, w.slice(0, 0, 5), {}, two) ==
        "[conv2d] x [2, 4, 5, 6] and weight [5, 2, 3, 3] do not fit 2 groups: x must have groups "
        "times as many channels as weight's dim 1, and weight's dim 0 be a multiple of groups; no "
        "extent of weight may be 0");
  CHECK(message(x, w.slice(3, 0, 0), {}, two) ==
        "[conv2d] x [2, 4, 5, 6] and weight [6, 2, 3, 0] do not fit 2 groups: x must have groups "
        "times as many channels as weight's dim 1, and weight's dim 0 be a multiple of groups; no "
        "extent of weight may be 0");
  CHECK(message(x, w, zeros({5}), two) == "[conv2d] bias has shape [5], expected [6]");
  CHECK(message(x, w, {}, {.stride = 0, .groups = 2}) ==
        "[conv2d] stride 0 x 0, dilation 1 x 1 and groups 2 must be at least 1");
  CHECK(message(x, w, {}, {.padding = {0, -1}, .groups = 2}) ==
        "[conv2d] padding is 0 x -1; it must not be negative");
  CHECK(message(x, w, {}, {.dilation = 3, .groups = 2}) ==
        "[conv2d] a kernel of 3 with dilation 3 spans 7, the input of 5 padded by 0 only 5; pad "
        "more or shrink the kernel");
  CHECK(message(x.slice(3, 0, 0), w, {}, {.padding = 2, .groups = 2}) ==
        "[conv2d] x [2, 4, 5, 0] has no elements in a channel; it needs some");
}

TEST_CASE("conv: errors of the derivatives") {
  const Tensor x = zeros({2, 4, 5}), w = zeros({6, 4, 3}), dy = zeros({2, 6, 3});
  const Conv2dOptions options = Conv1dOptions{}.as_2d();
  CHECK(conv_backward_input(dy, w, x.shape(), options).shape() == x.shape());
  CHECK(thrown<InvalidArgument>(
            [&] { conv_backward_input(dy.slice(2, 0, 2), w, x.shape(), options); }) ==
        "[conv_backward_input] dy has shape [2, 6, 2], the output [2, 6, 3]; they must be equal");
  CHECK(thrown<InvalidArgument>([&] {
          conv_backward_input(dy, w, {2, 4}, options);
        }) ==
        "[conv_backward_input] needs x [N, C, L] with weight [O, C / groups, K], or x [N, C, H, W] "
        "with weight [O, C / groups, KH, KW]; got [2, 4] and [6, 4, 3]");
  CHECK(thrown<InvalidArgument>(
            [&] { conv_backward_weight(dy.slice(0, 0, 1), x, w.shape(), options); }) ==
        "[conv_backward_weight] dy has shape [1, 6, 3], the output [2, 6, 3]; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { conv_backward_weight({}, x, w.shape(), options); }) ==
        "[conv_backward_weight] dy is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { conv_backward_weight_into({}, 0, dy, x, options); }) ==
        "[conv_backward_weight_into] dweight is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          conv_backward_weight_into(zeros({6, 3, 4}).transpose(1, 2), 0, dy, x, options);
        }) ==
        "[conv_backward_weight_into] dweight of shape [6, 4, 3] has strides [12, 1, 4]; it must be "
        "contiguous");
  CHECK(thrown<InvalidArgument>([&] {
          conv_backward_weight_into(cast(w, DType::kF64), 0, dy, x, options);
        }) == "[conv_backward_weight_into] operands have dtypes f32 and f64; cast one of them");
}

}  // namespace
}  // namespace tessera
