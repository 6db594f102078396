// What graphs of the emulated cuDNN compute, against sums written here.

#include <cmath>

#include "tessera/tests/tools/emulated_gpu/cudnn_graphs.h"

namespace tessera::testing {
namespace {

TEST_CASE("a matmul reads strides, and heads of groups share") {
  GraphMaker g;
  const auto a = some_numbers(2 * 4 * 3 * 5, 1), b = some_numbers(2 * 2 * 5 * 2, 2);
  const auto ia = g.input({.dims = {2, 4, 3, 5}}, a);
  // b in memory as [batch, head, n, k].
  const auto ib = g.input({.dims = {2, 2, 5, 2}, .strides = {20, 10, 1, 5}}, b);
  const auto ic = g.input({.dims = {2, 4, 3, 2}}, std::vector<float>(48));
  g.matmul(ia, ib, ic);
  g.run();
  const auto c = g.read(ic, 48);
  for (int n = 0; n < 2; ++n) {
    for (int h = 0; h < 4; ++h) {
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 2; ++j) {
          double sum = 0;
          for (int l = 0; l < 5; ++l) {
            sum += a[((n * 4 + h) * 3 + i) * 5 + l] * b[n * 20 + h / 2 * 10 + j * 5 + l];
          }
          REQUIRE(c[((n * 4 + h) * 3 + i) * 2 + j] == Approx(sum).margin(1e-5));
        }
      }
    }
  }
}

// softmax(scale * x) over the last dimension with a causal mask, as graphs of attention write it.
TEST_CASE("a causal softmax of pointwise operations and reductions, in any order") {
  const bool reversed = GENERATE(false, true);
  GraphMaker g;
  const Dims square = {1, 1, 4, 4}, row = {1, 1, 4, 1}, one = {1, 1, 1, 1};
  const auto values = some_numbers(16);
  float scale = 0.5f, minus = -1e30f;
  const auto x = g.input({.dims = square}, values);
  const auto y = g.input({.dims = square}, std::vector<float>(16));
  const auto factor = g.tensor({.dims = one, .by_value = true});
  const auto least = g.tensor({.dims = one, .by_value = true});
  g.on_host = {{factor, &scale}, {least, &minus}};
  const auto scaled = g.virtual_tensor(square), masked = g.virtual_tensor(square),
             shifted = g.virtual_tensor(square), exps = g.virtual_tensor(square),
             most = g.virtual_tensor(row), sum = g.virtual_tensor(row),
             rows = g.virtual_tensor(square, CUDNN_DATA_INT32),
             cols = g.virtual_tensor(square, CUDNN_DATA_INT32),
             keep = g.virtual_tensor(square, CUDNN_DATA_BOOLEAN);
  g.pointwise(CUDNN_POINTWISE_MUL, {x, factor}, scaled);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, {scaled}, rows, 2);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, {scaled}, cols, 3);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, {rows, cols}, keep);
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scaled, least, keep}, masked);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, most);
  g.pointwise(CUDNN_POINTWISE_SUB, {masked, most}, shifted);
  g.pointwise(CUDNN_POINTWISE_EXP, {shifted}, exps);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, exps, sum);
  g.pointwise(CUDNN_POINTWISE_DIV, {exps, sum}, y);
  if (reversed) std::reverse(g.operations.begin(), g.operations.end());
  g.run();
  scale = minus = 0;  // numbers by value were read when the plan was executed
  const auto result = g.read(y, 16);
  for (int i = 0; i < 4; ++i) {
    double total = 0;
    for (int j = 0; j <= i; ++j) total += std::exp(0.5 * values[i * 4 + j]);
    for (int j = 0; j < 4; ++j) {
      const double expected = j <= i ? std::exp(0.5 * values[i * 4 + j]) / total : 0;
      REQUIRE(result[i * 4 + j] == Approx(expected).margin(1e-6));
    }
  }
}

TEST_CASE("a reshape is a view: here a transpose before a matmul, which may change the type") {
  const auto type = GENERATE(CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16);
  GraphMaker g;
  const auto a = some_numbers(12, 1), b = some_numbers(12, 2);
  const auto ia = g.input({.dims = {1, 1, 3, 4}}, a), ib = g.input({.dims = {1, 1, 3, 4}}, b);
  const auto ic = g.input({.dims = {1, 1, 4, 4}}, std::vector<float>(16));
  const auto t =
      g.tensor({.dims = {1, 1, 4, 3}, .strides = {12, 12, 1, 4}, .type = type, .is_virtual = true});
  g.operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, g.of(ia))
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, g.of(t))
      .finalize();
  g.matmul(t, ib, ic);
  g.run();
  const auto c = g.read(ic, 16);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const double sum = a[i] * b[j] + a[4 + i] * b[4 + j] + a[8 + i] * b[8 + j];
      REQUIRE(c[i * 4 + j] == Approx(sum).margin(1e-5));
    }
  }
}

TEST_CASE("reductions may leave groups of heads, and store 16 bits rounded") {
  GraphMaker g;
  const std::vector<float> values = {1, 2, 3, 4, 256, 1};
  const auto x = g.input({.dims = {1, 6, 1, 1}}, values);
  const auto y = g.input({.dims = {1, 3, 1, 1}}, std::vector<float>(3));
  const auto z = g.input<BFloat16>({.dims = {1, 3, 1, 1}, .type = CUDNN_DATA_BFLOAT16},
                                   std::vector<BFloat16>(3));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, x, y);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, {y}, z);
  g.run();
  REQUIRE(g.read(y, 3) == std::vector<float>{3, 7, 257});
  BFloat16 rounded[3];
  REQUIRE(cudaMemcpy(rounded, g.memory[z], sizeof rounded, cudaMemcpyDeviceToHost) == cudaSuccess);
  REQUIRE(static_cast<float>(rounded[2]) == 256);
}

struct Conv {
  std::int64_t n = 2, c = 4, h = 5, w = 6, k = 6, r = 3, s = 2, groups = 2;
  std::int64_t stride[2] = {2, 1}, dilation[2] = {1, 2}, before[2] = {1, 0}, after[2] = {0, 1};
  std::int64_t p() const {
    return (h + before[0] + after[0] - dilation[0] * (r - 1) - 1) / stride[0] + 1;
  }
  std::int64_t q() const {
    return (w + before[1] + after[1] - dilation[1] * (s - 1) - 1) / stride[1] + 1;
  }
  // f(x index, w index, y index) of packed tensors, by the definition of a cross-correlation.
  template <class F>
  void for_each(F f) const {
    const std::int64_t cg = c / groups, kg = k / groups;
    for (std::int64_t b = 0; b < n; ++b)
      for (std::int64_t o = 0; o < k; ++o)
        for (std::int64_t y = 0; y < p(); ++y)
          for (std::int64_t x = 0; x < q(); ++x)
            for (std::int64_t i = 0; i < cg; ++i)
              for (std::int64_t u = 0; u < r; ++u)
                for (std::int64_t v = 0; v < s; ++v) {
                  const std::int64_t hh = y * stride[0] + u * dilation[0] - before[0];
                  const std::int64_t ww = x * stride[1] + v * dilation[1] - before[1];
                  if (hh < 0 || hh >= h || ww < 0 || ww >= w) continue;
                  f(((b * c + o / kg * cg + i) * h + hh) * w + ww, ((o * cg + i) * r + u) * s + v,
                    ((b * k + o) * p() + y) * q() + x);
                }
  }
};

// The operation's attributes, and its description of the convolution.
void convolve(GraphMaker& g, const Conv& conv, cudnnBackendDescriptorType_t type,
              const std::vector<std::pair<cudnnBackendAttributeName_t, std::int64_t>>& tensors,
              const std::vector<cudnnBackendAttributeName_t>& alpha_beta_conv) {
  const auto two = [](const std::int64_t* x) { return Dims{x[0], x[1]}; };
  auto& how = g.own(std::make_unique<Backend>(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  how.set<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                           {CUDNN_DATA_FLOAT})
      .set<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                   {CUDNN_CROSS_CORRELATION})
      .set<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, {2})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, two(conv.dilation))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, two(conv.stride))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, two(conv.before))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, two(conv.after))
      .finalize();
  auto& made = g.operation(type);
  for (const auto& [name, id] : tensors) made.set(name, g.of(id));
  made.set<float>(alpha_beta_conv[0], CUDNN_TYPE_FLOAT, {2})
      .set<float>(alpha_beta_conv[1], CUDNN_TYPE_FLOAT, {0.5})
      .set(alpha_beta_conv[2], how)
      .finalize();
}

TEST_CASE("convolutions and both their gradients: groups, strides, dilations, uneven padding") {
  const Conv conv;
  const Dims xd = {conv.n, conv.c, conv.h, conv.w}, wd = {conv.k, conv.c / 2, conv.r, conv.s},
             yd = {conv.n, conv.k, conv.p(), conv.q()};
  const auto x = some_numbers(240, 1), w = some_numbers(72, 2),
             y = some_numbers(static_cast<std::size_t>(conv.n * conv.k * conv.p() * conv.q()), 3);
  for (const int kind : {0, 1, 2}) {
    GraphMaker g;
    const auto ix = g.input({.dims = xd}, x), iw = g.input({.dims = wd}, w),
               iy = g.input({.dims = yd}, y);
    auto expected = kind == 0 ? y : kind == 1 ? x : w;
    for (float& one : expected) one *= 0.5f;
    conv.for_each([&](std::int64_t i, std::int64_t j, std::int64_t l) {
      if (kind == 0) expected[l] += 2 * x[i] * w[j];
      if (kind == 1) expected[i] += 2 * y[l] * w[j];
      if (kind == 2) expected[j] += 2 * x[i] * y[l];
    });
    if (kind == 0) {
      convolve(g, conv, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, ix},
                {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, iw},
                {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, iy}},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC});
    } else if (kind == 1) {
      convolve(g, conv, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, ix},
                {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, iw},
                {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, iy}},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC});
    } else {
      convolve(g, conv, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, ix},
                {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, iw},
                {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, iy}},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC});
    }
    g.run();
    const auto result = g.read(kind == 0 ? iy : kind == 1 ? ix : iw, expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO("kind " << kind << ", element " << i);
      REQUIRE(result[i] == Approx(expected[i]).margin(1e-4));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
