// Pooling and its derivatives: values against plain loops and PyTorch, layouts, threads, errors.
#include "tessera/tensor/ops/pool.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

std::vector<double> f64(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The elements of window o: indices inside [0, in), and their number including padding.
struct Window {
  std::vector<std::int64_t> inside;
  std::int64_t padded = 0;
};
struct Axis {
  std::int64_t in, kernel, stride, padding, dilation;
};
Window window(const Axis& a, std::int64_t o) {
  Window w;
  for (std::int64_t t = 0; t < a.kernel; ++t) {
    const std::int64_t i = o * a.stride - a.padding + t * a.dilation;
    if (i >= 0 && i < a.in) w.inside.push_back(i);
    w.padded += i < a.in + a.padding;
  }
  return w;
}

struct Case {
  Shape x;
  MaxPool2dOptions options;

  Axis h() const {
    return {x[2], options.kernel.height,
            options.stride.height == 0 ? options.kernel.height : options.stride.height,
            options.padding.height, options.dilation.height};
  }
  Axis w() const {
    return {x[3], options.kernel.width,
            options.stride.width == 0 ? options.kernel.width : options.stride.width,
            options.padding.width, options.dilation.width};
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1, 1, 1, 1}, {.kernel = 1}},
      {{2, 3, 7, 9}, {.kernel = 2}},
      {{2, 2, 8, 6}, {.kernel = {3, 2}, .stride = {1, 2}, .padding = 1}},
      {{1, 3, 11, 7}, {.kernel = 3, .stride = 2, .padding = {1, 0}, .dilation = {2, 1}}},
      {{2, 2, 8, 7}, {.kernel = 3, .stride = {2, 3}, .ceil_mode = true}},
      {{1, 2, 5, 5}, {.kernel = 2, .stride = 3, .padding = 1, .ceil_mode = true}},
      {{2, 1, 1, 40}, {.kernel = {1, 4}, .stride = {1, 5}}},  // elements in no window
      {{2, 1, 5, 75}, {.kernel = {2, 33}, .stride = {2, 11}, .padding = {1, 16}}},
      {{1, 2, 6, 41}, {.kernel = {3, 17}, .stride = {1, 3}, .dilation = {1, 2}}},
      {{2, 2, 7, 9}, {.kernel = {3, 9}, .stride = {2, 1}}},  // whole rows
      {{1, 2, 7, 39}, {.kernel = {7, 39}}},                  // a whole plane
      {{0, 2, 4, 4}, {.kernel = 2}}};
  return all;
}

// body(window index, row-major index of each element, divisor) for every window of every plane.
void for_each_window(
    const Case& c, const Shape& y, bool count_pad,
    const std::function<void(std::size_t, const std::vector<std::size_t>&, double)>& body) {
  for (std::int64_t o = 0; o < y.numel(); ++o) {
    const std::int64_t j = o % y[3], i = o / y[3] % y[2], plane = o / y[3] / y[2];
    const Window rows = window(c.h(), i), columns = window(c.w(), j);
    std::vector<std::size_t> elements;
    for (std::int64_t r : rows.inside)
      for (std::int64_t k : columns.inside)
        elements.push_back(at((plane * c.x[2] + r) * c.x[3] + k));
    body(at(o), elements,
         count_pad ? static_cast<double>(rows.padded * columns.padded)
                   : static_cast<double>(elements.size()));
  }
}

double worst(const Tensor& got, const std::vector<double>& expected) {
  const auto values = f64(got);
  REQUIRE(values.size() == expected.size());
  double off = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    off = std::max(off, std::abs(values[i] - expected[i]));
  return off;
}

void check_max(const Case& c, DType dtype, double tolerance) {
  const Tensor x = cast(spread_tensor<double>(c.x), dtype);
  const MaxPoolResult got = max_pool2d(x, c.options);
  INFO(dtype_name(dtype) << " x " << c.x.str() << " y " << got.output.shape().str());
  const Tensor dy = cast(spread_tensor<double>(got.output.shape(), -1, 1), dtype);
  const auto xs = f64(x), ds = f64(dy);
  const auto indices = got.indices.to_vector<std::int64_t>();
  std::vector<double> y(ds.size()), dx(xs.size());
  for_each_window(c, got.output.shape(), false,
                  [&](std::size_t o, const std::vector<std::size_t>& elements, double) {
                    std::size_t best = elements.front();
                    for (std::size_t e : elements) best = xs[e] > xs[best] ? e : best;
                    y[o] = xs[best];
                    dx[best] += ds[o];
                    CHECK(indices[o] == static_cast<std::int64_t>(best) % (c.x[2] * c.x[3]));
                  });
  CHECK(worst(got.output, y) == 0);
  CHECK(worst(max_pool_backward(dy, got.indices, c.x, c.options), dx) <= tolerance);
}

void check_avg(const Case& c, bool count_pad, DType dtype, double tolerance) {
  const MaxPool2dOptions& o = c.options;
  if (o.dilation.height != 1 || o.dilation.width != 1) return;
  const AvgPool2dOptions options{.kernel = o.kernel,
                                 .stride = o.stride,
                                 .padding = o.padding,
                                 .ceil_mode = o.ceil_mode,
                                 .count_include_pad = count_pad};
  const Tensor x = cast(spread_tensor<double>(c.x), dtype), got = avg_pool2d(x, options);
  INFO(dtype_name(dtype) << " x " << c.x.str() << " y " << got.shape().str() << " count pad "
                         << count_pad);
  const Tensor dy = cast(spread_tensor<double>(got.shape(), -1, 1), dtype);
  const auto xs = f64(x), ds = f64(dy);
  std::vector<double> y(ds.size()), dx(xs.size());
  for_each_window(c, got.shape(), count_pad,
                  [&](std::size_t at_y, const std::vector<std::size_t>& elements, double divisor) {
                    for (std::size_t e : elements) {
                      y[at_y] += xs[e] / divisor;
                      dx[e] += ds[at_y] / divisor;
                    }
                  });
  CHECK(worst(got, y) <= tolerance);
  CHECK(worst(avg_pool_backward(dy, c.x, options), dx) <= tolerance);
}

TEST_CASE("pooling: odd sizes and every option, against plain loops") {
  for (const Case& c : cases()) {
    for (const auto& [dtype, tolerance] : {std::pair{DType::kF64, 1e-14},
                                           {DType::kF32, 2e-6},
                                           {DType::kBF16, 0.02},
                                           {DType::kF16, 3e-3}}) {
      check_max(c, dtype, tolerance);
      check_avg(c, true, dtype, tolerance);
      check_avg(c, false, dtype, tolerance);
    }
  }
}

MaxPool2dOptions max_options(const ReferenceCase& c) {
  const auto number = [&](const char* key) { return static_cast<std::int64_t>(c.number(key)); };
  return {.kernel = number("kernel"),
          .stride = number("stride"),
          .padding = number("padding"),
          .dilation = number("dilation"),
          .ceil_mode = c.flag("ceil_mode")};
}
AvgPool2dOptions avg_options(const ReferenceCase& c) {
  const auto number = [&](const char* key) { return static_cast<std::int64_t>(c.number(key)); };
  return {.kernel = number("kernel"),
          .stride = number("stride"),
          .padding = number("padding"),
          .ceil_mode = c.flag("ceil_mode"),
          .count_include_pad = c.flag("count_include_pad")};
}

void check_reference(const ReferenceCase& c) {
  const Tensor &x = c.tensor("x"), &dy = c.tensor("dy");
  const std::string& function = c.text("function");
  const bool line = x.ndim() == 3;
  Tensor y, dx;
  if (function.starts_with("max")) {
    const MaxPool2dOptions o = max_options(c);
    const MaxPool1dOptions o1{.kernel = o.kernel.width,
                              .stride = o.stride.width,
                              .padding = o.padding.width,
                              .dilation = o.dilation.width,
                              .ceil_mode = o.ceil_mode};
    const MaxPoolResult r = line ? max_pool1d(x, o1) : max_pool2d(x, o);
    y = r.output;
    dx = max_pool_backward(dy, r.indices, x.shape(), line ? o1.as_2d() : o);
  } else if (function.starts_with("avg")) {
    const AvgPool2dOptions o = avg_options(c);
    const AvgPool1dOptions o1{.kernel = o.kernel.width,
                              .stride = o.stride.width,
                              .padding = o.padding.width,
                              .ceil_mode = o.ceil_mode,
                              .count_include_pad = o.count_include_pad};
    y = line ? avg_pool1d(x, o1) : avg_pool2d(x, o);
    dx = avg_pool_backward(dy, x.shape(), line ? o1.as_2d() : o);
  } else {
    const auto size = c.list("output");
    if (function.starts_with("adaptive_max")) {
      const MaxPoolResult r =
          line ? adaptive_max_pool1d(x, size[0]) : adaptive_max_pool2d(x, {size[0], size[1]});
      y = r.output;
      dx = adaptive_max_pool_backward(dy, r.indices, x.shape());
    } else {
      y = line ? adaptive_avg_pool1d(x, size[0]) : adaptive_avg_pool2d(x, {size[0], size[1]});
      dx = adaptive_avg_pool_backward(dy, x.shape());
    }
  }
  CHECK(all_close(y, c.tensor("y")));
  CHECK(all_close(dx, c.tensor("dx")));
}

TEST_CASE("pooling: PyTorch's values") {
  for (const ReferenceCase& c : load_reference("pool")) {
    INFO(c.name);
    check_reference(c);
  }
}

TEST_CASE("max_pool: NaN, infinities, equals, and windows outside the input") {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from_vector<float>({3, 3, -inf, -inf, 1, nan, nan, 2}, {1, 1, 8});
  const MaxPoolResult r = max_pool1d(x, {.kernel = 2});
  const auto y = r.output.to_vector<float>();
  CHECK(y[0] == 3);
  CHECK(y[1] == -inf);
  CHECK(std::isnan(y[2]));
  CHECK(std::isnan(y[3]));
  CHECK(r.indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 2, 5, 6});
  const MaxPoolResult missed =
      max_pool1d(zeros({1, 1, 2}), {.kernel = 2, .padding = 1, .dilation = 3});
  CHECK(missed.output.to_vector<float>() == std::vector<float>{-inf});
  CHECK(missed.indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{-1});
  const Tensor dx =
      max_pool_backward(ones({1, 1, 1}), missed.indices, {1, 1, 2},
                        MaxPool1dOptions{.kernel = 2, .padding = 1, .dilation = 3}.as_2d());
  CHECK(all_equal(dx, zeros({1, 1, 2})));
}

// -0 and 0, which are equal, infinities, NaN and a few numbers.
Tensor coarse_tensor(const Shape& shape) {
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {1, -1, -0.0f, 2, 0, 1, -inf, 2, -0.0f, -3, 0};
  std::vector<float> x(at(shape.numel()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = values[i * 7919 % 11];
    if (i % 97 == 53) x[i] = std::numeric_limits<float>::quiet_NaN();
    if (i / 30 % 7 == 2) x[i] = -inf;
    if (i / 50 % 5 == 1 && x[i] > 0) x[i] = -1;
  }
  return Tensor::from_vector(x, shape);
}

void check_first_maximum(const Case& c) {
  const Tensor x = coarse_tensor(c.x);
  const MaxPoolResult got = max_pool2d(x, c.options);
  INFO("kernel " << c.options.kernel.height << " x " << c.options.kernel.width);
  const auto xs = x.to_vector<float>();
  const auto indices = got.indices.to_vector<std::int64_t>();
  std::vector<float> y(indices.size());
  for_each_window(c, got.output.shape(), false,
                  [&](std::size_t o, const std::vector<std::size_t>& elements, double) {
                    std::size_t best = elements.front();
                    for (std::size_t e : elements) {
                      if (std::isnan(xs[best])) break;
                      if (xs[e] > xs[best] || std::isnan(xs[e])) best = e;
                    }
                    y[o] = xs[best];
                    CHECK(indices[o] == static_cast<std::int64_t>(best) % (c.x[2] * c.x[3]));
                  });
  CHECK(same_bits(got.output.to_vector<float>(), y));
}

TEST_CASE("max_pool: the first of equal elements, and the first NaN, in windows of every size") {
  for (std::int64_t rows : {1, 2, 5}) {
    for (std::int64_t columns : {1, 2, 3, 7, 15, 16, 17, 24, 41}) {
      check_first_maximum({{2, 3, 6, 45}, {.kernel = {rows, columns}, .stride = 1}});
      check_first_maximum(
          {{1, 2, 6, 91}, {.kernel = {rows, columns}, .stride = 1, .dilation = {1, 2}}});
    }
  }
}

// [begin, end) of window o of an adaptive pool.
std::pair<std::int64_t, std::int64_t> adaptive_window(std::int64_t o, std::int64_t in,
                                                      std::int64_t out) {
  return {o * in / out, ((o + 1) * in + out - 1) / out};
}

void check_adaptive(const Shape& shape, Size2d output, DType dtype, double tolerance) {
  const Tensor x = cast(spread_tensor<double>(shape), dtype);
  INFO(dtype_name(dtype) << " " << output.height << " x " << output.width);
  const Tensor mean = adaptive_avg_pool2d(x, output);
  const MaxPoolResult max = adaptive_max_pool2d(x, output);
  const Tensor dy = cast(spread_tensor<double>(mean.shape(), -1, 1), dtype);
  const auto xs = f64(x), ds = f64(dy);
  std::vector<double> y(ds.size()), dx(xs.size()), top(ds.size()), dx_top(xs.size());
  const std::int64_t h = shape[2], w = shape[3];
  std::size_t o = 0;
  for (std::int64_t plane = 0; plane < shape[0] * shape[1]; ++plane) {
    for (std::int64_t i = 0; i < output.height; ++i) {
      for (std::int64_t j = 0; j < output.width; ++j, ++o) {
        const auto [r0, r1] = adaptive_window(i, h, output.height);
        const auto [c0, c1] = adaptive_window(j, w, output.width);
        const auto count = static_cast<double>((r1 - r0) * (c1 - c0));
        std::size_t best = at((plane * h + r0) * w + c0);
        for (std::int64_t r = r0; r < r1; ++r) {
          for (std::int64_t c = c0; c < c1; ++c) {
            const std::size_t e = at((plane * h + r) * w + c);
            y[o] += xs[e] / count;
            dx[e] += ds[o] / count;
            if (xs[e] > xs[best]) best = e;
          }
        }
        top[o] = xs[best];
        dx_top[best] += ds[o];
      }
    }
  }
  CHECK(worst(mean, y) <= tolerance);
  CHECK(worst(adaptive_avg_pool_backward(dy, shape), dx) <= tolerance);
  CHECK(worst(max.output, top) == 0);
  CHECK(worst(adaptive_max_pool_backward(dy, max.indices, shape), dx_top) <= tolerance);
}

TEST_CASE("adaptive pooling: short and long windows, whole rows and planes, against plain loops") {
  for (const auto& [dtype, tolerance] : {std::pair{DType::kF64, 1e-14},
                                         {DType::kF32, 2e-6},
                                         {DType::kBF16, 0.02},
                                         {DType::kF16, 3e-3}}) {
    for (const Size2d output : {Size2d{1, 1}, {3, 2}, {5, 1}, {1, 3}, {13, 45}, {17, 50}})
      check_adaptive({2, 3, 13, 45}, output, dtype, tolerance);
    check_adaptive({2, 1, 1, 1100}, {1, 1}, dtype, tolerance);
    check_adaptive({1, 2, 3, 5}, {1, 1}, dtype, tolerance);
  }
}

TEST_CASE("max_pool_backward: indices outside the plane name no element") {
  const std::int64_t low = std::numeric_limits<std::int64_t>::min();
  const Tensor indices = Tensor::from_vector<std::int64_t>({1, 8, -1, low, 4, 7}, {2, 1, 3});
  const Tensor dy = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 1, 3});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor dx = max_pool_backward(cast(dy, dtype), indices, {2, 1, 8},
                                        MaxPool1dOptions{.kernel = 2, .stride = 3}.as_2d());
    CHECK(f64(dx) == std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 6});
  }
}

template <class T>
std::vector<T> bits_of(const Tensor& x, const Tensor& dy) {
  const MaxPool2dOptions max{.kernel = 3, .stride = 2, .padding = 1};
  const AvgPool2dOptions avg{.kernel = 3, .stride = 2, .padding = 1};
  const MaxPoolResult r = max_pool2d(x, max);
  std::vector<T> out;
  for (const Tensor& y :
       {r.output, avg_pool2d(x, avg), adaptive_avg_pool2d(x, {7, 10}), adaptive_avg_pool2d(x, 1),
        adaptive_max_pool2d(x, 4).output, adaptive_max_pool2d(x, 1).output,
        max_pool_backward(dy, r.indices, x.shape(), max), avg_pool_backward(dy, x.shape(), avg),
        adaptive_avg_pool_backward(dy, x.shape())}) {
    const auto values = y.to_vector<T>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

template <class T>
void check_bits() {
  const Tensor x = spread_tensor<T>({9, 13, 27, 31}), dy = spread_tensor<T>({9, 13, 14, 16});
  const auto expected = bits_of<T>(x, dy);
  CHECK(same_for_any_threads([&] { return bits_of<T>(x, dy); }));
  const auto xs = layouts(x), ds = layouts(dy);
  for (std::size_t i = 0; i < xs.size(); ++i) CHECK(same_bits(expected, bits_of<T>(xs[i], ds[i])));
}

TEST_CASE("pooling: equal bits for any number of threads and every layout") {
  check_bits<float>();
  check_bits<double>();
}

TEST_CASE("pooling: errors") {
  const Tensor x = zeros({2, 3, 4, 5});
  const auto max = [&](const MaxPool2dOptions& options) {
    return thrown<InvalidArgument>([&] { max_pool2d(x, options); });
  };
  CHECK(max({}) == "[max_pool2d] kernel 0, stride 0 and dilation 1 must be at least 1");
  CHECK(max({.kernel = 2, .stride = -1}) ==
        "[max_pool2d] kernel 2, stride -1 and dilation 1 must be at least 1");
  CHECK(max({.kernel = 2, .padding = 2}) ==
        "[max_pool2d] padding 2 must lie between 0 and half the kernel of 2");
  CHECK(max({.kernel = {2, 3}, .dilation = {1, 4}}) ==
        "[max_pool2d] a window of 3 with dilation 4 spans 9, the input of 5 padded by 0 only 5");
  CHECK(thrown<InvalidArgument>([&] { max_pool1d(x, {.kernel = 2}); }) ==
        "[max_pool1d] needs x [N, C, L] or [C, L], got [2, 3, 4, 5]");
  CHECK(thrown<InvalidArgument>([&] { avg_pool1d(x, {.kernel = 2}); }) ==
        "[avg_pool1d] needs x [N, C, L] or [C, L], got [2, 3, 4, 5]");
  CHECK(thrown<InvalidArgument>([&] { avg_pool2d(x.select(0, 0).select(0, 0), {.kernel = 2}); }) ==
        "[avg_pool2d] needs x [N, C, H, W] or [C, H, W], got [4, 5]");
  CHECK(thrown<InvalidArgument>([&] { avg_pool2d({}, {.kernel = 2}); }) ==
        "[avg_pool2d] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { avg_pool2d(arange(4), {.kernel = 2}); }) ==
        "[avg_pool2d] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { avg_pool2d(x.slice(2, 0, 0), {.kernel = 1}); }) ==
        "[avg_pool2d] x [2, 3, 0, 5] has no elements in a channel; it needs some");
  CHECK(thrown<InvalidArgument>([&] {
          adaptive_avg_pool2d(x, {2, 0});
        }) == "[adaptive_avg_pool2d] the output size is 2 x 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([&] { adaptive_max_pool1d(x.select(0, 0), 0); }) ==
        "[adaptive_max_pool1d] the output size is 1 x 0; it must be at least 1");
}

TEST_CASE("pooling: errors of the derivatives") {
  const Shape x{2, 3, 4, 5};
  const Tensor dy = zeros({2, 3, 2, 2}), indices = zeros({2, 3, 2, 2}, {.dtype = DType::kI64});
  CHECK(thrown<InvalidArgument>([&] { max_pool_backward({}, indices, x, {.kernel = 2}); }) ==
        "[max_pool_backward] dy is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { max_pool_backward(dy, {}, x, {.kernel = 2}); }) ==
        "[max_pool_backward] indices is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { max_pool_backward(dy, dy, x, {.kernel = 2}); }) ==
        "[max_pool_backward] indices are f32 [2, 3, 2, 2], expected the forward's: contiguous i64 "
        "[2, 3, 2, 2]");
  CHECK(thrown<InvalidArgument>([&] {
          max_pool_backward(dy, zeros({2, 3, 2, 2}, {.dtype = DType::kI64, .device = kNull}), x,
                            {.kernel = 2});
        }) == "[max_pool_backward] operands are on " + default_device().str() +
                  " and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { max_pool_backward(indices, indices, x, {.kernel = 2}); }) ==
        "[max_pool_backward] needs a floating dtype, got i64; cast it first");
  CHECK(
      thrown<InvalidArgument>([&] { avg_pool_backward(dy, x, {.kernel = 3}); }) ==
      "[avg_pool_backward] dy has shape [2, 3, 2, 2], the output [2, 3, 1, 1]; they must be equal");
  CHECK(thrown<InvalidArgument>([&] {
          adaptive_avg_pool_backward(dy, {3, 4, 5});
        }) ==
        "[adaptive_avg_pool_backward] needs dy and x of 3 or of 4 dims, got [2, 3, 2, 2] and [3, "
        "4, 5]");
  CHECK(thrown<InvalidArgument>([&] {
          adaptive_avg_pool_backward(dy, {1, 3, 4, 5});
        }) ==
        "[adaptive_avg_pool_backward] dy has shape [2, 3, 2, 2], the output [1, 3, 2, 2]; they "
        "must be equal");
}

}  // namespace
}  // namespace tessera
