#include "tessera/tensor/ops_nn.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tensor/ops_optim.h"
#include "tessera/tensor/stream.h"
#include "tessera/tests/tensor/ops_support.h"
#include "tessera/tests/tensor/throws.h"

namespace tessera {
namespace {

using namespace testing;

std::vector<double> slow_softmax(const std::vector<double>& x, std::size_t n) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += n) {
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += std::exp(x[row + i]);
    for (std::size_t i = 0; i < n; ++i) y[row + i] = std::exp(x[row + i]) / total;
  }
  return y;
}

TEST_CASE("softmax: values, layouts, large logits, empty") {
  for (std::int64_t n : {1, 2, 10, 17, 1000}) {
    const Tensor x = spread_tensor<double>({5, n}, -4, 4);
    const auto exact = slow_softmax(x.to_vector<double>(), static_cast<std::size_t>(n));
    for (const Tensor& layout : layouts(x)) {
      const auto y = softmax(layout).to_vector<double>();
      const auto y32 = softmax(cast(layout, DType::kF32)).to_vector<float>();
      for (std::size_t i = 0; i < exact.size(); ++i) {
        CHECK(std::abs(y[i] - exact[i]) <= 1e-15 + 1e-13 * exact[i]);
        CHECK(std::abs(y32[i] - exact[i]) <= 1e-8 + 2e-6 * exact[i]);
      }
    }
  }
  CHECK(softmax(Tensor::from_vector<float>({1000, 1000}, {2})).to_vector<float>() ==
        std::vector<float>{0.5f, 0.5f});
  CHECK(softmax(zeros({3, 0})).shape() == Shape{3, 0});
  CHECK(softmax(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(thrown<InvalidArgument>([] { softmax(Tensor::scalar(1)); }) ==
        "[softmax] needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  CHECK(thrown<InvalidArgument>([] { softmax(arange(3)); }) ==
        "[softmax] needs a floating dtype, got i64; cast it first");
}

Tensor targets_below(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> t;
  for (std::int64_t row = 0; row < rows; ++row) t.push_back((row * 7 + 3) % classes);
  return Tensor::from_vector(t, {rows});
}

TEST_CASE("cross entropy: loss, log-sum-exp and derivative") {
  for (std::int64_t n : {1, 10, 37}) {
    const Tensor x = spread_tensor<double>({6, n}, -4, 4), t = targets_below(6, n),
                 d = spread_tensor<double>({6});
    const auto soft = slow_softmax(x.to_vector<double>(), static_cast<std::size_t>(n));
    const auto target = t.to_vector<std::int64_t>();
    const auto scale = d.to_vector<double>();
    for (const Tensor& layout : layouts(x)) {
      const auto [loss, log_sum_exp] = cross_entropy_rows(layout, t);
      const auto grad = cross_entropy_rows_backward(d, layout, t, log_sum_exp).to_vector<double>();
      const auto losses = loss.to_vector<double>();
      for (std::size_t row = 0; row < 6; ++row) {
        const std::size_t at =
            row * static_cast<std::size_t>(n) + static_cast<std::size_t>(target[row]);
        CHECK(losses[row] == Approx(-std::log(soft[at])).epsilon(1e-13).margin(1e-14));
        for (std::size_t i = row * static_cast<std::size_t>(n);
             i < (row + 1) * static_cast<std::size_t>(n); ++i) {
          CHECK(std::abs(grad[i] - (soft[i] - (i == at)) * scale[row]) <= 1e-14);
        }
      }
    }
    const auto f32 = cross_entropy_rows(cast(x, DType::kF32), t);
    const auto f64 = cross_entropy_rows(x, t);
    for (std::size_t row = 0; row < 6; ++row) {
      CHECK(f32.loss.to_vector<float>()[row] ==
            Approx(f64.loss.to_vector<double>()[row]).epsilon(2e-6).margin(1e-6));
    }
  }
}

TEST_CASE("cross entropy: a confident row loses little, and not exactly nothing") {
  const Tensor x = Tensor::from_vector<float>({1000, 990}, {1, 2});
  const auto r = cross_entropy_rows(x, Tensor::from_vector<std::int64_t>({0}, {1}));
  CHECK(r.loss.item<float>() == Approx(std::log1p(std::exp(-10.0))).epsilon(1e-2));
  CHECK(r.log_sum_exp.item<float>() == Approx(1000));
  CHECK(cross_entropy_rows(zeros({0, 3}), zeros({0}, {.dtype = DType::kI64})).loss.numel() == 0);
}

TEST_CASE("softmax and cross entropy: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({5000, 37}), t = targets_below(5000, 37),
               d = spread_tensor<float>({5000});
  CHECK(same_for_any_threads([&] { return softmax(x).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] { return cross_entropy_rows(x, t).loss.to_vector<float>(); }));
  CHECK(same_for_any_threads([&] {
    return cross_entropy_rows_backward(d, x, t, cross_entropy_rows(x, t).log_sum_exp)
        .to_vector<float>();
  }));
}

TEST_CASE("cross entropy: bad targets are found by the kernel") {
  const Tensor x = zeros({3, 4}), bad = Tensor::from_vector<std::int64_t>({0, 4, -1}, {3});
  CHECK(thrown<InvalidArgument>([&] { cross_entropy_rows(x, bad); }) ==
        "[cross_entropy_rows] target 4 in row 1 is outside [0, 4); targets are class indices");
  CHECK(thrown<InvalidArgument>(
            [&] { cross_entropy_rows_backward(zeros({3}), x, bad, zeros({3})); }) ==
        "[cross_entropy_rows_backward] target 4 in row 1 is outside [0, 4); targets are class "
        "indices");
  const Stream queued = Stream::create(kCpu, StreamKind::kQueued, "queued");
  StreamGuard guard(queued);
  const Tensor xq = zeros({3, 4}), badq = clone(bad);
  cross_entropy_rows(xq, badq);
  CHECK(thrown<InvalidArgument>([&] { queued.synchronize(); }) ==
        "[cross_entropy_rows] target 4 in row 1 is outside [0, 4); targets are class indices");
}

TEST_CASE("cross entropy: errors") {
  const Tensor x = zeros({3, 4}), t = zeros({3}, {.dtype = DType::kI64});
  CHECK(thrown<InvalidArgument>([&] { cross_entropy_rows(x, zeros({3})); }) ==
        "[cross_entropy_rows] targets have dtype f32; they must be i64");
  CHECK(thrown<InvalidArgument>([&] { cross_entropy_rows(x, t.slice(0, 0, 2)); }) ==
        "[cross_entropy_rows] needs logits [rows, classes] and targets [rows], got [3, 4] and [2]");
  CHECK(thrown<InvalidArgument>([&] { cross_entropy_rows(Tensor(), t); }) ==
        "[cross_entropy_rows] logits is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          cross_entropy_rows_backward(zeros({2}), x, t, zeros({3}));
        }) == "[cross_entropy_rows_backward] dloss has shape [2], expected [3]");
  CHECK(thrown<InvalidArgument>([&] {
          cross_entropy_rows_backward(zeros({3}), x, t, zeros({3, 1}));
        }) == "[cross_entropy_rows_backward] log_sum_exp has shape [3, 1], expected [3]");
}

struct SgdCase {
  double lr, momentum, dampening, decay;
  bool nesterov;
};

template <class T>
void check_sgd(const SgdCase& c) {
  const std::vector<std::int64_t> lengths = {5, 0, 1, 70'001};
  std::vector<SgdSegment> segments;
  std::vector<std::vector<double>> p, g, m;
  for (std::int64_t n : lengths) {
    const bool has_momentum = c.momentum != 0;
    segments.push_back({.parameter = spread_tensor<T>({n}, -1, 1),
                        .gradient = spread_tensor<T>({n}, -3, 3),
                        .momentum = has_momentum ? zeros({n}, {.dtype = dtype_of<T>}) : Tensor(),
                        .lr = c.lr,
                        .momentum_factor = c.momentum,
                        .dampening = c.dampening,
                        .weight_decay = c.decay,
                        .nesterov = c.nesterov});
    p.push_back(cast(segments.back().parameter, DType::kF64).to_vector<double>());
    g.push_back(cast(segments.back().gradient, DType::kF64).to_vector<double>());
    m.emplace_back(p.back().size());
  }
  for (int step = 0; step < 3; ++step) {
    for (SgdSegment& s : segments) s.first_step = step == 0;
    sgd_step(segments);
    for (std::size_t s = 0; s < p.size(); ++s) {
      for (std::size_t i = 0; i < p[s].size(); ++i) {
        const double grad = g[s][i] + c.decay * p[s][i];
        m[s][i] = step == 0 ? grad : c.momentum * m[s][i] + (1 - c.dampening) * grad;
        const double by = c.momentum == 0 ? grad
                          : c.nesterov    ? grad + c.momentum * m[s][i]
                                          : m[s][i];
        p[s][i] -= c.lr * by;
      }
    }
  }
  double worst = 0;
  for (std::size_t s = 0; s < p.size(); ++s) {
    const auto got = cast(segments[s].parameter, DType::kF64).to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - p[s][i]));
  }
  CHECK(worst <= (sizeof(T) == 4 ? 2e-6 : 1e-14));
}

TEST_CASE("sgd_step: PyTorch's definition, over segments of any length") {
  for (const SgdCase& c : {SgdCase{0.1, 0, 0, 0, false}, SgdCase{0.1, 0, 0, 0.01, false},
                           SgdCase{0.1, 0.9, 0, 0, false}, SgdCase{0.05, 0.9, 0.1, 0.01, false},
                           SgdCase{0.1, 0.9, 0, 0.01, true}}) {
    check_sgd<float>(c);
    check_sgd<double>(c);
  }
  sgd_step({});
}

TEST_CASE("sgd_step: equal bits for any number of threads and any cut into segments") {
  const auto step = [](std::vector<std::int64_t> cuts) {
    const Tensor p = spread_tensor<float>({100'003}), g = spread_tensor<float>({100'003}, 0, 1);
    std::vector<SgdSegment> segments;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      segments.push_back({.parameter = p.slice(0, cuts[i], cuts[i + 1]),
                          .gradient = g.slice(0, cuts[i], cuts[i + 1]),
                          .momentum = {},
                          .lr = 0.1,
                          .weight_decay = 0.01});
    }
    sgd_step(segments);
    return p.to_vector<float>();
  };
  CHECK(same_for_any_threads([&] { return step({0, 100'003}); }));
  CHECK(same_bits(step({0, 100'003}), step({0, 1, 20, 50'001, 50'001, 100'003})));
}

TEST_CASE("sgd_step: errors") {
  const Tensor p = zeros({4}), g = zeros({4});
  const auto message = [](SgdSegment segment) {
    return thrown<InvalidArgument>([&] { sgd_step({segment}); });
  };
  CHECK(message({}) == "[sgd_step] the parameter is undefined; pass a tensor");
  CHECK(message({.parameter = p}) == "[sgd_step] the gradient is undefined; pass a tensor");
  CHECK(message({.parameter = p, .gradient = zeros({3})}) ==
        "[sgd_step] shapes [4] and [3] differ; they must be equal");
  CHECK(message({.parameter = p, .gradient = zeros({4}, {.dtype = DType::kF64})}) ==
        "[sgd_step] operands have dtypes f32 and f64; cast one of them");
  CHECK(message({.parameter = p, .gradient = zeros({4, 2}).select(1, 0)}) ==
        "[sgd_step] the gradient of shape [4] has strides [2]; it must be contiguous");
  CHECK(message({.parameter = arange(4), .gradient = arange(4)}) ==
        "[sgd_step] needs a floating dtype, got i64; cast it first");
  CHECK(message({.parameter = p, .gradient = g, .momentum_factor = 0.9}) ==
        "[sgd_step] momentum_factor 0.9 (nesterov: false) needs a momentum buffer; pass one");
}

}  // namespace
}  // namespace tessera
