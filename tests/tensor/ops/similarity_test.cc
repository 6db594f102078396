// Lengths, angles and distances, and the norms of single channels and of neighbouring ones: values against formulas.
#include "tessera/tensor/ops/similarity.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera::testing {
namespace {

using naive::Array;
using naive::Index;

double p_norm(const std::vector<double>& values, double p) {
  double total = 0;
  for (double v : values) total += std::pow(std::abs(v), p);
  return std::pow(total, 1 / p);
}

TEST_CASE("normalize divides by the norm of the dim, or by eps") {
  const Tensor t = spread_tensor<double>({3, 4, 2});
  fill_(t.select(0, 1), 0);
  const Array x = naive::array_of(t);
  for (int dim : {0, 1, -1}) {
    for (double p : {1.0, 2.0, 3.0}) {
      Array norms =
          naive::reduce(x, {dim}, true, [&](const std::vector<double>& v) { return p_norm(v, p); });
      Array expected = x;
      naive::for_each_index(x.shape, [&](const Index& i) {
        Index at = i;
        at[static_cast<std::size_t>((dim + 3) % 3)] = 0;
        expected.at(i) /= std::max(norms.at(at), 1e-12);
      });
      for (const Tensor& layout : layouts(t))
        CHECK(naive::is_close(normalize(layout, {.p = p, .dim = dim}), expected, 1e-13, 1e-14));
    }
  }
  const Tensor small = Tensor::from_vector<double>({3, 4}, {1, 2});
  CHECK(normalize(small, {.eps = 10}).to_vector<double>() == std::vector<double>{0.3, 0.4});
  CHECK(normalize(zeros({0, 3})).shape() == Shape{0, 3});
  check_dtypes(spread_tensor<double>({3, 5}), [](const Tensor& v) { return normalize(v); });
}

TEST_CASE("cosine_similarity and pairwise_distance compare vectors, which broadcast") {
  const Tensor a = spread_tensor<double>({2, 5, 3}), b = spread_tensor<double>({5, 1}, 0.5, 2),
               zero = zeros({2, 5, 3}, {.dtype = DType::kF64});
  const Array x = naive::array_of(a), y = naive::array_of(b);
  Array cosine = naive::filled({2, 3}, 0);
  naive::for_each_index(cosine.shape, [&](const Index& i) {
    double dot = 0, xx = 0, yy = 0;
    for (std::int64_t k = 0; k < 5; ++k) {
      const double u = x.at({i[0], k, i[1]}), v = y.at({k, 0});
      dot += u * v, xx += u * u, yy += v * v;
    }
    cosine.at(i) = dot / std::sqrt(xx * yy);
  });
  CHECK(naive::is_close(cosine_similarity(a, b), cosine, 1e-13, 1e-14));
  CHECK(naive::is_close(cosine_similarity(b, a, {.dim = -2}), cosine, 1e-13, 1e-14));
  CHECK(naive::is_equal(cosine_similarity(a, zero), naive::filled({2, 3}, 0)));
  const Tensor one = Tensor::from_vector<double>({1, 0}, {2});
  CHECK(cosine_similarity(one, mul(one, 1e-9), {.dim = 0}).item<double>() == Approx(0.1));
  for (double p : {1.0, 2.0, 3.5}) {
    Array distance = naive::filled({2, 5}, 0);
    naive::for_each_index(distance.shape, [&](const Index& i) {
      std::vector<double> differences;
      for (std::int64_t k = 0; k < 3; ++k)
        differences.push_back(x.at({i[0], i[1], k}) - y.at({i[1], 0}) + 1e-6);
      distance.at(i) = p_norm(differences, p);
    });
    CHECK(naive::is_close(pairwise_distance(a, b, {.p = p}), distance, 1e-13, 1e-14));
    distance.shape.push_back(1);
    CHECK(naive::is_close(pairwise_distance(a, b, {.p = p, .keep_dim = true}), distance, 1e-13,
                          1e-14));
  }
  CHECK(pairwise_distance(one, one, {.eps = 0.5}).item<double>() == Approx(std::sqrt(0.5)));
  CHECK(pairwise_distance(zeros({2}), zeros({2}, {.dtype = DType::kF64})).dtype() == DType::kF64);
  check_dtypes(spread_tensor<double>({3, 5}),
               [](const Tensor& v) { return cosine_similarity(v, add(v, 1)); });
}

TEST_CASE("instance_norm: each channel of a sample by itself") {
  const Tensor t = spread_tensor<double>({2, 3, 4, 5}), w = spread_tensor<double>({3}),
               b = spread_tensor<double>({3}, 1, 3);
  const Array x = naive::array_of(t), weight = naive::array_of(w), bias = naive::array_of(b);
  const auto rows = [&](auto fold) { return naive::reduce(x, {2, 3}, false, fold); };
  const auto mean_of = [](const std::vector<double>& v) {
    double total = 0;
    for (double e : v) total += e;
    return total / static_cast<double>(v.size());
  };
  const auto squares_of = [&](const std::vector<double>& v) {
    double total = 0;
    for (double e : v) total += (e - mean_of(v)) * (e - mean_of(v));
    return total;
  };
  const Array means = rows(mean_of), squares = rows(squares_of);
  Array expected = x;
  naive::for_each_index(x.shape, [&](const Index& i) {
    const double normal =
        (x.at(i) - means.at({i[0], i[1]})) / std::sqrt(squares.at({i[0], i[1]}) / 20 + 0.01);
    expected.at(i) = normal * weight.at({i[1]}) + bias.at({i[1]});
  });
  const Tensor running_mean = ones({3}, {.dtype = DType::kF64}),
               running_var = full({3}, 2, {.dtype = DType::kF64});
  const InstanceNormOptions tracked{
      .running_mean = running_mean, .running_var = running_var, .momentum = 0.3, .eps = 0.01};
  CHECK(naive::is_close(instance_norm(t, w, b, tracked), expected, 1e-12, 1e-13));
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto at = static_cast<std::size_t>(c);
    CHECK(running_mean.to_vector<double>()[at] ==
          Approx(0.7 + 0.3 * (means.at({0, c}) + means.at({1, c})) / 2));
    CHECK(running_var.to_vector<double>()[at] ==
          Approx(1.4 + 0.3 * (squares.at({0, c}) + squares.at({1, c})) / 2 / 19));
  }
  Array fixed = x;
  const auto m = running_mean.to_vector<double>(), v = running_var.to_vector<double>();
  naive::for_each_index(x.shape, [&](const Index& i) {
    const auto c = static_cast<std::size_t>(i[1]);
    fixed.at(i) = (x.at(i) - m[c]) / std::sqrt(v[c] + 0.01);
  });
  InstanceNormOptions evaluated = tracked;
  evaluated.use_input_stats = false;
  CHECK(naive::is_close(instance_norm(t, {}, {}, evaluated), fixed, 1e-12, 1e-13));
  CHECK(instance_norm(zeros({0, 3, 4}), {}, {}).shape() == Shape{0, 3, 4});
  check_dtypes(spread_tensor<double>({2, 3, 7}),
               [](const Tensor& in) { return instance_norm(in, {}, {}); });
}

TEST_CASE("local_response_norm divides by neighbouring channels") {
  for (std::int64_t size : {1, 2, 3, 4, 9}) {
    for (const Shape& shape : {Shape{2, 5, 3}, Shape{1, 5, 2, 3}, Shape{2, 0, 3}}) {
      const LocalResponseNormOptions o{.size = size, .alpha = 0.7, .beta = 0.6, .k = 1.5};
      const Tensor t = spread_tensor<double>(shape);
      const Array x = naive::array_of(t);
      Array expected = x;
      naive::for_each_index(x.shape, [&](const Index& i) {
        double total = 0;
        for (std::int64_t c = i[1] - size / 2; c <= i[1] + (size - 1) / 2; ++c) {
          Index at = i;
          at[1] = c;
          if (c >= 0 && c < 5) total += x.at(at) * x.at(at);
        }
        expected.at(i) /= std::pow(1.5 + 0.7 * total / static_cast<double>(size), 0.6);
      });
      for (const Tensor& layout : layouts(t))
        CHECK(naive::is_close(local_response_norm(layout, o), expected, 1e-13, 1e-14));
    }
  }
  check_dtypes(spread_tensor<double>({2, 5, 3}),
               [](const Tensor& x) { return local_response_norm(x, {.size = 3}); });
}

TEST_CASE("similarity and norms of channels: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor x = zeros({2, 3, 4});
  CHECK(text([&] {
          instance_norm(zeros({2, 3}), {}, {});
        }) ==
        "[instance_norm] needs an input [samples, channels, ...] of at least 3 dims, got shape [2, "
        "3]");
  CHECK(text([&] {
          instance_norm(zeros({2, 3, 1}), {}, {});
        }) ==
        "[instance_norm] an input of shape [2, 3, 1] has 1 elements in a channel of a sample; "
        "statistics need at least 2");
  CHECK(text([&] { instance_norm(x, {}, {}, {.use_input_stats = false}); }) ==
        "[instance_norm] running_mean or running_var is undefined; pass both, or neither with "
        "use_input_stats");
  CHECK(text([&] { instance_norm(x, {}, {}, {.running_mean = zeros({3})}); }) ==
        "[instance_norm] running_mean or running_var is undefined; pass both, or neither with "
        "use_input_stats");
  CHECK(text([&] {
          instance_norm(x, {}, {}, {.running_mean = zeros({2}), .running_var = zeros({3})});
        }) ==
        "[instance_norm] a running statistic has shape [2]; it must be contiguous, of shape [3]");
  CHECK(text([&] { local_response_norm(x, {}); }) ==
        "[local_response_norm] size is 0; it must be at least 1");
}

}  // namespace
}  // namespace tessera::testing
