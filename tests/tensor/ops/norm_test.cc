// Layer, RMS, group and batch norm: against slow loops and PyTorch, in every dtype and layout.
#include "tessera/tensor/ops/norm.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera {
namespace {

using namespace testing;

// The elements of x[samples, channels, spatial] that share statistics, as groups of flat indices.
using Groups = std::vector<std::vector<std::size_t>>;

struct SlowNorm {
  std::int64_t samples, channels, spatial;
  Groups groups;

  std::size_t channel(std::size_t i) const {
    return i / static_cast<std::size_t>(spatial) % static_cast<std::size_t>(channels);
  }
};

// `group_of(sample, channel)` numbers the groups.
template <class GroupOf>
SlowNorm slow_norm(std::int64_t samples, std::int64_t channels, std::int64_t spatial,
                   const GroupOf& group_of) {
  SlowNorm norm{samples, channels, spatial, {}};
  std::size_t at = 0;
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t l = 0; l < spatial; ++l) {
        const auto group = static_cast<std::size_t>(group_of(n, c));
        if (norm.groups.size() <= group) norm.groups.resize(group + 1);
        norm.groups[group].push_back(at++);
      }
    }
  }
  return norm;
}

struct SlowResult {
  std::vector<double> y, dx, dweight, dbias;
};

// Forward and derivative, element by element, for a gradient dy.
SlowResult slow(const SlowNorm& norm, const std::vector<double>& x, const std::vector<double>& w,
                const std::vector<double>& b, const std::vector<double>& dy, bool centered,
                double eps) {
  SlowResult out{x, x, std::vector<double>(w.size()), std::vector<double>(w.size())};
  for (const auto& group : norm.groups) {
    const auto n = static_cast<double>(group.size());
    double mean = 0, variance = 0, mean_g = 0, mean_gh = 0;
    for (std::size_t i : group) mean += centered ? x[i] / n : 0;
    for (std::size_t i : group) variance += (x[i] - mean) * (x[i] - mean) / n;
    const double rstd = 1 / std::sqrt(variance + eps);
    const auto h = [&](std::size_t i) { return (x[i] - mean) * rstd; };
    for (std::size_t i : group) {
      const double g = dy[i] * w[norm.channel(i)];
      mean_g += centered ? g / n : 0;
      mean_gh += g * h(i) / n;
    }
    for (std::size_t i : group) {
      const std::size_t c = norm.channel(i);
      out.y[i] = h(i) * w[c] + b[c];
      out.dx[i] = rstd * (dy[i] * w[c] - mean_g - h(i) * mean_gh);
      out.dweight[c] += dy[i] * h(i);
      out.dbias[c] += dy[i];
    }
  }
  return out;
}

void check_near(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const auto got = cast(actual, DType::kF64).to_vector<double>();
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i])));
  CHECK(worst <= tolerance);
}

struct Case {
  Tensor x, weight, bias, dy;
};

Case make_case(const Shape& shape, std::int64_t affine) {
  return {.x = spread_tensor<double>(shape, -1, 3),
          .weight = spread_tensor<double>({affine}, 0.5, 2),
          .bias = spread_tensor<double>({affine}, -1, 1),
          .dy = spread_tensor<double>(shape, -2, 1)};
}

SlowResult slow(const SlowNorm& norm, const Case& c, bool centered, double eps) {
  return slow(norm, c.x.to_vector<double>(), c.weight.to_vector<double>(),
              c.bias.to_vector<double>(), c.dy.to_vector<double>(), centered, eps);
}

TEST_CASE("layer and rms norm: values and derivatives against slow loops") {
  for (const auto& [rows, n] : {std::pair{1, 1}, {3, 7}, {300, 5}, {5, 1100}, {700, 33}}) {
    INFO(rows << " rows of " << n);
    const Case c = make_case({rows, n}, n);
    const SlowNorm norm = slow_norm(rows, n, 1, [](std::int64_t row, std::int64_t) { return row; });
    const SlowResult layer = slow(norm, c, true, 1e-5), rms = slow(norm, c, false, 1e-6);
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::kF64, 1e-11), std::pair(DType::kF32, 2e-5)}) {
      const Tensor x = cast(c.x, dtype), w = cast(c.weight, dtype), b = cast(c.bias, dtype),
                   dy = cast(c.dy, dtype);
      for (std::size_t l = 0; l < 4; ++l) {
        const Tensor in = layouts(x)[l], slope = layouts(dy)[l];
        const NormResult got = layer_norm_forward(in, w, b);
        check_near(got.y, layer.y, tolerance);
        const NormGradients g = row_norm_backward(slope, in, w, got.statistics);
        check_near(g.x, layer.dx, tolerance * 10);
        check_near(g.weight, layer.dweight, tolerance * 10);
        check_near(g.bias, layer.dbias, tolerance * 10);
        const NormResult plain = rms_norm_forward(in, w);
        const NormGradients r = row_norm_backward(slope, in, w, plain.statistics);
        check_near(add(plain.y, b), rms.y, tolerance);
        check_near(r.x, rms.dx, tolerance * 10);
        check_near(r.weight, rms.dweight, tolerance * 10);
      }
    }
  }
}

TEST_CASE("group norm: values and derivatives against slow loops") {
  struct Sizes {
    std::int64_t samples, channels, spatial, groups;
  };
  for (const Sizes& s : {Sizes{1, 1, 1, 1},
                         {3, 6, 1, 2},
                         {2, 6, 5, 3},
                         {5, 4, 1300, 2},
                         {40, 4, 3, 4},
                         {300, 6, 7, 2}}) {
    INFO(s.samples << " " << s.channels << " " << s.spatial << " " << s.groups);
    const Case c = make_case({s.samples, s.channels, s.spatial}, s.channels);
    const SlowNorm norm =
        slow_norm(s.samples, s.channels, s.spatial, [&](std::int64_t n, std::int64_t channel) {
          return n * s.groups + channel / (s.channels / s.groups);
        });
    const SlowResult expected = slow(norm, c, true, 1e-5);
    const NormResult got = group_norm_forward(c.x, c.weight, c.bias, {.groups = s.groups});
    CHECK(got.statistics.mean.shape() == Shape{s.samples, s.groups});
    check_near(got.y, expected.y, 1e-11);
    const NormGradients g =
        row_norm_backward(c.dy, c.x, c.weight, got.statistics, {.groups = s.groups});
    check_near(g.x, expected.dx, 1e-10);
    check_near(g.weight, expected.dweight, 1e-10);
    check_near(g.bias, expected.dbias, 1e-10);
  }
}

TEST_CASE("batch norm: values and derivatives against slow loops") {
  for (const auto& [samples, channels, spatial] : {std::array<std::int64_t, 3>{2, 1, 1},
                                                   {129, 3, 1},
                                                   {300, 130, 1},
                                                   {3, 5, 7},
                                                   {7, 2, 1300},
                                                   {2, 3, 1024},
                                                   {3000, 2, 3}}) {
    INFO(samples << " " << channels << " " << spatial);
    const Case c = make_case({samples, channels, spatial}, channels);
    const SlowNorm norm = slow_norm(samples, channels, spatial,
                                    [](std::int64_t, std::int64_t channel) { return channel; });
    const SlowResult expected = slow(norm, c, true, 1e-5);
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::kF64, 1e-10), std::pair(DType::kF32, 3e-5)}) {
      const Tensor x = cast(c.x, dtype), w = cast(c.weight, dtype), b = cast(c.bias, dtype),
                   dy = cast(c.dy, dtype);
      const BatchNormResult got = batch_norm_forward(x, w, b);
      check_near(got.y, expected.y, tolerance);
      BatchNormSums sums = batch_norm_sums(dy, x, got.statistics);
      check_near(sums.dy_normal, expected.dweight, tolerance * 10);
      check_near(sums.dy, expected.dbias, tolerance * 10);
      sums.count = got.count;
      check_near(batch_norm_input_gradient(dy, x, w, got.statistics, sums), expected.dx,
                 tolerance * 10);
    }
  }
}

TEST_CASE("norms: what PyTorch computes") {
  for (const ReferenceCase& c : load_reference("norm")) {
    INFO(c.name);
    const std::string& function = c.text("function");
    const Tensor &x = c.tensor("x"), &dy = c.tensor("dy");
    const Tensor weight = c.optional("weight"), bias = c.optional("bias");
    const double eps = c.number("eps");
    NormGradients g;
    Tensor y;
    if (function == "batch_norm") {
      const Tensor mean = clone(c.tensor("running_mean")), var = clone(c.tensor("running_var"));
      const BatchNormResult r = batch_norm_forward(x, weight, bias,
                                                   {.running_mean = mean,
                                                    .running_var = var,
                                                    .training = c.flag("training"),
                                                    .momentum = c.number("momentum"),
                                                    .eps = eps});
      BatchNormSums sums = batch_norm_sums(dy, x, r.statistics);
      sums.count = r.count;
      y = r.y;
      g = {batch_norm_input_gradient(dy, x, weight, r.statistics, sums), sums.dy_normal, sums.dy};
      CHECK(all_close(mean, c.tensor("new_running_mean")));
      CHECK(all_close(var, c.tensor("new_running_var")));
    } else {
      const int dims = function == "group_norm" ? 1 : static_cast<int>(c.number("dims"));
      const std::int64_t groups =
          function == "group_norm" ? static_cast<std::int64_t>(c.number("groups")) : 0;
      const NormResult r = groups > 0
                               ? group_norm_forward(x, weight, bias, {.groups = groups, .eps = eps})
                           : function == "rms_norm"
                               ? rms_norm_forward(x, weight, {.dims = dims, .eps = eps})
                               : layer_norm_forward(x, weight, bias, {.dims = dims, .eps = eps});
      y = r.y;
      g = row_norm_backward(dy, x, weight, r.statistics, {.dims = dims, .groups = groups});
    }
    CHECK(all_close(y, c.tensor("y")));
    CHECK(all_close(g.x, c.tensor("dx")));
    if (weight.defined()) CHECK(all_close(g.weight, c.tensor("dweight")));
    if (bias.defined()) CHECK(all_close(g.bias, c.tensor("dbias")));
  }
}

TEST_CASE("norms: every dtype and layout") {
  const Tensor x = spread_tensor<double>({5, 6, 7}, -1, 3), dy = spread_tensor<double>({5, 6, 7});
  const auto like = [](const Tensor& p, const Tensor& in) {
    return cast(cast(p, DType::kBF16), in.dtype());
  };
  const Tensor w7 = spread_tensor<double>({7}, 0.5, 2), b7 = spread_tensor<double>({7}),
               w6 = spread_tensor<double>({6}, 0.5, 2), b6 = spread_tensor<double>({6});
  check_dtypes(x, [&](const Tensor& in) { return layer_norm(in, like(w7, in), like(b7, in)); });
  check_dtypes(x, [&](const Tensor& in) {
    return layer_norm(in, Tensor(), Tensor(), {.dims = 2, .eps = 0.1});
  });
  check_dtypes(x, [&](const Tensor& in) { return rms_norm(in, like(w7, in)); });
  check_dtypes(x, [&](const Tensor& in) {
    return group_norm(in, like(w6, in), like(b6, in), {.groups = 2});
  });
  check_dtypes(x, [&](const Tensor& in) { return batch_norm(in, like(w6, in), like(b6, in)); });
  check_dtypes(x.select(2, 0),
               [&](const Tensor& in) { return batch_norm(in, Tensor(), Tensor()); });
  // Derivatives, with respect to dy.
  check_dtypes(dy, [&](const Tensor& in) {
    const Tensor at = like(x, in), w = like(w7, in);
    return row_norm_backward(in, at, w, layer_norm_forward(at, w, Tensor()).statistics).x;
  });
  check_dtypes(dy, [&](const Tensor& in) {
    const Tensor at = like(x, in);
    const BatchNormResult r = batch_norm_forward(at, Tensor(), Tensor());
    BatchNormSums sums = batch_norm_sums(in, at, r.statistics);
    sums.count = r.count;
    return batch_norm_input_gradient(in, at, Tensor(), r.statistics, sums);
  });
  // Parameters may stay in f32 for a 16-bit input.
  const Tensor half = cast(x, DType::kBF16), w32 = cast(w7, DType::kF32);
  CHECK(all_close(layer_norm(half, w32, Tensor()),
                  cast(layer_norm(cast(half, DType::kF32), w32, Tensor()), DType::kBF16)));
}

TEST_CASE("norms: exact where the mean is far larger than the deviation") {
  // Numbers that f32 represents, 2^20 and a few eighths; their mean lies between two f32 numbers.
  std::vector<float> values(2000);
  double m2 = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double more = 0.125 * static_cast<double>(i % 8);
    values[i] = static_cast<float>(1048576.0 + more);
    m2 += (more - 0.4375) * (more - 0.4375);
  }
  const double rstd = 1 / std::sqrt(m2 / 2000);
  const Tensor row = Tensor::from_vector(values, {1, 2000});
  const NormResult layer = layer_norm_forward(row, Tensor(), Tensor(), {.eps = 0});
  const double mean = layer.statistics.mean.item<float>();
  CHECK(std::abs(mean - 1048576.4375) <= 0.0625);
  CHECK(layer.statistics.rstd.item<float>() == Approx(rstd).epsilon(1e-6));
  CHECK(layer.y.to_vector<float>()[0] == Approx((1048576.0 - mean) * rstd).epsilon(1e-6));
  for (const Shape& shape : {Shape{2000, 1}, Shape{2, 1, 1000}, Shape{1, 1, 2000}}) {
    const BatchStatistics s = batch_norm_statistics(row.view(shape));
    CHECK(std::abs(s.mean.item<float>() - 1048576.4375) <= 0.0625);
    CHECK(s.m2.item<float>() == Approx(m2).epsilon(1e-6));
    CHECK(s.count.item<double>() == 2000);
  }
}

TEST_CASE("batch norm: statistics of parts, put together") {
  const Tensor x = spread_tensor<double>({10, 3, 4}, -1, 3);
  const BatchStatistics whole = batch_norm_statistics(x);
  const BatchStatistics a = batch_norm_statistics(x.slice(0, 0, 3)),
                        b = batch_norm_statistics(x.slice(0, 3, 10)),
                        none = batch_norm_statistics(x.slice(0, 3, 3));
  CHECK(none.count.item<double>() == 0);
  CHECK(none.mean.to_vector<double>() == std::vector<double>(3, 0.0));
  CHECK(none.m2.to_vector<double>() == std::vector<double>(3, 0.0));
  const Tensor count = add(a.count, b.count);
  const Tensor mean = div(add(mul(a.mean, a.count), mul(b.mean, b.count)), count);
  const Tensor m2 = add(add(a.m2, mul(square(sub(a.mean, mean)), a.count)),
                        add(b.m2, mul(square(sub(b.mean, mean)), b.count)));
  CHECK(all_close(mean, whole.mean));
  CHECK(all_close(m2, whole.m2));
  CHECK(all_equal(count, whole.count));
}

TEST_CASE("batch norm: running statistics") {
  const Tensor x = spread_tensor<double>({4, 2}, -1, 3);
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor mean = full({2}, 1, {.dtype = dtype}), var = full({2}, 2, {.dtype = dtype});
    batch_norm(x, Tensor(), Tensor(), {.running_mean = mean, .running_var = var, .momentum = 1});
    const BatchStatistics s = batch_norm_statistics(x);
    CHECK(all_close(mean, cast(s.mean, dtype)));
    CHECK(all_close(var, cast(mul(s.m2, 1.0 / 3), dtype)));
    // With running statistics in use, nothing is updated.
    const std::uint64_t version = mean.version();
    const Tensor y = batch_norm(x, Tensor(), Tensor(),
                                {.running_mean = mean, .running_var = var, .training = false});
    CHECK(mean.version() == version);
    const Tensor rstd =
        div(ones({2}, x.options()), tessera::sqrt(add(cast(var, DType::kF64), 1e-5)));
    CHECK(all_close(y, mul(sub(x, cast(mean, DType::kF64)), rstd)));
  }
  // For one element the variance with divisor count - 1 does not exist.
  const Tensor var = full({2}, 2, {.dtype = DType::kF64});
  batch_norm_rstd(batch_norm_statistics(x.slice(0, 0, 1)), {.running_var = var});
  CHECK(var.to_vector<double>() == std::vector<double>{2, 2});
}

TEST_CASE("norms: empty inputs") {
  const Tensor w = ones({4}), b = zeros({4});
  const NormResult none = layer_norm_forward(zeros({0, 4}), w, b);
  CHECK(none.y.shape() == Shape{0, 4});
  const NormGradients g = row_norm_backward(zeros({0, 4}), zeros({0, 4}), w, none.statistics);
  CHECK(g.weight.to_vector<float>() == std::vector<float>(4, 0.0f));
  CHECK(g.bias.to_vector<float>() == std::vector<float>(4, 0.0f));
  CHECK(rms_norm(zeros({3, 0}), Tensor()).shape() == Shape{3, 0});
  CHECK(group_norm(zeros({0, 4, 2}), w, b, {.groups = 2}).shape() == Shape{0, 4, 2});
  CHECK(group_norm(zeros({2, 4, 0}), w, b, {.groups = 2}).shape() == Shape{2, 4, 0});
  const BatchNormOptions eval{.running_mean = b, .running_var = w, .training = false};
  CHECK(batch_norm(zeros({0, 4}), w, b, eval).shape() == Shape{0, 4});
  CHECK(batch_norm(zeros({2, 4, 0}), w, b, eval).shape() == Shape{2, 4, 0});
}

TEST_CASE("norms: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({900, 6, 30}, -1, 3),
               dy = spread_tensor<float>({900, 6, 30}), w30 = spread_tensor<float>({30}),
               w6 = spread_tensor<float>({6});
  for (DType dtype : {DType::kF32, DType::kF16}) {
    const Tensor in = cast(x, dtype), slope = cast(dy, dtype);
    const auto all = [](std::initializer_list<Tensor> parts) {
      std::vector<float> out;
      for (const Tensor& part : parts) {
        const auto values = cast(part, DType::kF32).to_vector<float>();
        out.insert(out.end(), values.begin(), values.end());
      }
      return out;
    };
    CHECK(same_for_any_threads([&] {
      const NormResult r = layer_norm_forward(in, w30, w30);
      const NormGradients g = row_norm_backward(slope, in, w30, r.statistics);
      return all({r.y, g.x, g.weight, g.bias});
    }));
    CHECK(same_for_any_threads([&] {
      const NormResult r = group_norm_forward(in, w6, w6, {.groups = 3});
      const NormGradients g = row_norm_backward(slope, in, w6, r.statistics, {.groups = 3});
      return all({r.y, g.x, g.weight, g.bias});
    }));
    for (const Shape& shape : {Shape{900, 6, 30}, Shape{27'000, 6}}) {
      CHECK(same_for_any_threads([&] {
        const Tensor at = in.view(shape), d = slope.view(shape);
        const BatchNormResult r = batch_norm_forward(at, w6, w6);
        BatchNormSums sums = batch_norm_sums(d, at, r.statistics);
        sums.count = r.count;
        return all({r.y, r.statistics.rstd, sums.dy, sums.dy_normal,
                    batch_norm_input_gradient(d, at, w6, r.statistics, sums)});
      }));
    }
  }
}

template <class Body>
std::string message(const Body& body) {
  return thrown<InvalidArgument>(body);
}

TEST_CASE("layer, rms and group norm: errors") {
  const Tensor x = zeros({2, 4}), none;
  CHECK(message([&] { layer_norm(none, none, none); }) ==
        "[layer_norm] the tensor is undefined; pass a tensor");
  CHECK(message([&] { rms_norm(arange(4), none); }) ==
        "[rms_norm] needs a floating dtype, got i64; cast it first");
  CHECK(message([&] { layer_norm(x, none, none, {.dims = 3}); }) ==
        "[layer_norm] cannot normalise the last 3 dims of shape [2, 4]; give 1 to 2");
  CHECK(message([&] { layer_norm(x, zeros({3}), none); }) ==
        "[layer_norm] the weight has shape [3]; an input of shape [2, 4] needs [4]");
  CHECK(
      message([&] { layer_norm(x, none, zeros({4}, {.dtype = DType::kF64})); }) ==
      "[layer_norm] the bias has dtype f64; with an input of f32 it must be f32; cast one of them");
  CHECK(message([&] {
          layer_norm(x, zeros({4}, {.device = kNull}), none);
        }).starts_with("[layer_norm] operands are on "));
  CHECK(message([&] { layer_norm(x, none, none, {.eps = -1}); }) ==
        "[layer_norm] eps is -1; it must not be negative");
  CHECK(message([&] { group_norm(zeros({4}), none, none); }) ==
        "[group_norm] needs an input [samples, channels, ...], got shape [4]");
  CHECK(message([&] { group_norm(x, none, none, {.groups = 3}); }) ==
        "[group_norm] 4 channels do not split into 3 groups; give a number of groups that divides "
        "them");
  const NormStatistics s = layer_norm_forward(x, none, none).statistics;
  CHECK(message([&] {
          row_norm_backward(zeros({2, 3}), x, none, s);
        }) == "[row_norm_backward] shapes [2, 3] and [2, 4] differ; they must be equal");
  CHECK(
      message([&] { row_norm_backward(x, x, none, {.mean = s.mean, .rstd = zeros({3})}); }) ==
      "[row_norm_backward] rstd is f32 of shape [3]; an input of f32 and shape [2, 4] needs f32 of "
      "shape [2]");
  CHECK(message([&] { row_norm_backward(x, x, none, {}); }) ==
        "[row_norm_backward] rstd is undefined; pass a tensor");
}

TEST_CASE("batch norm: errors") {
  const Tensor x = zeros({2, 4}), none;
  CHECK(message([&] { batch_norm(zeros({4}), none, none); }) ==
        "[batch_norm] needs an input [samples, channels, ...], got shape [4]");
  CHECK(
      message([&] {
        batch_norm(zeros({1, 4}), none, none);
      }) ==
      "[batch_norm] training needs at least 2 elements in a channel, shape [1, 4] has 1; give more "
      "samples");
  CHECK(message([&] { batch_norm(x, none, none, {.training = false}); }) ==
        "[batch_norm] running_mean is undefined; not training, it needs running_mean and "
        "running_var; "
        "pass them");
  CHECK(message([&] { batch_norm(x, none, none, {.running_mean = zeros({3})}); }) ==
        "[batch_norm] running_mean has shape [3] and strides [1]; it must be contiguous, of shape "
        "[4]");
  CHECK(message([&] { batch_norm(x, none, none, {.running_var = arange(4)}); }) ==
        "[batch_norm] needs a floating dtype, got i64; cast it first");
  CHECK(message([&] { batch_norm(x, none, none, {.eps = -1}); }) ==
        "[batch_norm] eps is -1; it must not be negative");
  const BatchStatistics s = batch_norm_statistics(x);
  CHECK(message([&] {
          batch_norm_rstd({s.mean, s.m2, zeros({})}, {});
        }) == "[batch_norm] count is f32 of shape []; it must be one f64");
  CHECK(message([&] {
          batch_norm_rstd({s.mean, zeros({3}), s.count}, {});
        }) == "[batch_norm] shapes [4] and [3] differ; they must be equal");
  CHECK(message([&] {
          batch_norm_rstd({s.mean, s.m2, none}, {});
        }) == "[batch_norm] count is undefined; pass a tensor");
  CHECK(
      message([&] {
        batch_norm_apply(x, none, none, {s.mean, zeros({3})});
      }) ==
      "[batch_norm] rstd is f32 of shape [3]; an input of f32 and shape [2, 4] needs f32 of shape "
      "[4]");
  CHECK(message([&] {
          batch_norm_sums(zeros({2, 3}), x, {s.mean, s.m2});
        }) == "[batch_norm] shapes [2, 3] and [2, 4] differ; they must be equal");
  CHECK(message([&] {
          batch_norm_input_gradient(x, x, none, {s.mean, s.m2}, {none, none, s.count});
        }) == "[batch_norm] the sum of dy is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
