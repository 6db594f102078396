// Softmax and cross entropy: against slow loops and PyTorch, in every dtype and layout.
#include "tessera/tensor/ops/nn.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/nn_support.h"

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
  for (std::int64_t n : {1, 2, 10, 17, 1000, 3001}) {
    const Tensor x = spread_tensor<double>({5, n}, -4, 4);
    const auto exact = slow_softmax(x.to_vector<double>(), static_cast<std::size_t>(n));
    for (const Tensor& layout : layouts(x)) {
      const auto y = softmax(layout).to_vector<double>();
      const auto log = log_softmax(layout).to_vector<double>();
      const auto y32 = softmax(cast(layout, DType::kF32)).to_vector<float>();
      double worst = 0, worst_log = 0, worst32 = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        worst = std::max(worst, std::abs(y[i] - exact[i]) / (1e-15 + 1e-13 * exact[i]));
        worst_log = std::max(worst_log, std::abs(log[i] - std::log(exact[i])));
        worst32 = std::max(worst32, std::abs(y32[i] - exact[i]) / (1e-8 + 2e-6 * exact[i]));
      }
      CHECK(worst <= 1);
      CHECK(worst_log <= 1e-13);
      CHECK(worst32 <= 1);
    }
  }
  CHECK(softmax(Tensor::from_vector<float>({1000, 1000}, {2})).to_vector<float>() ==
        std::vector<float>{0.5f, 0.5f});
  CHECK(log_softmax(Tensor::from_vector<float>({1000, 0}, {2})).to_vector<float>() ==
        std::vector<float>{0.0f, -1000.0f});
  for (const Shape& empty : {Shape{3, 0, 2}, Shape{0, 3, 1}}) {
    for (int dim : {0, 1, 2}) {
      CHECK(softmax(zeros(empty), dim).shape() == empty);
      CHECK(log_softmax(zeros(empty), dim).shape() == empty);
    }
  }
}

TEST_CASE("softmax over any dim: every layout and dtype") {
  for (const Shape& shape : {Shape{7}, Shape{3, 5}, Shape{4, 3, 5}, Shape{2, 1, 70}}) {
    const Tensor x = spread_tensor<double>(shape, -4, 4), dy = spread_tensor<double>(shape, -1, 1);
    for (int dim = -1; dim < shape.ndim(); ++dim) {
      INFO(shape.str() << " dim " << dim);
      // The last dim is tested elsewhere, so move the dim there and back.
      const Tensor moved = contiguous(x.transpose(dim, -1));
      const Tensor last = softmax(moved).transpose(dim, -1);
      CHECK(all_equal(softmax(x, dim), contiguous(last)));
      check_dtypes(x, [&](const Tensor& in) { return softmax(in, dim); });
      check_dtypes(x, [&](const Tensor& in) { return log_softmax(in, dim); });
      for (auto backward : {softmax_backward, log_softmax_backward}) {
        const Tensor y = backward == softmax_backward ? softmax(x, dim) : log_softmax(x, dim);
        check_dtypes(dy, [&](const Tensor& in) {
          return backward(in, cast(cast(y, DType::kBF16), in.dtype()), dim);
        });
      }
    }
  }
}

TEST_CASE("softmax: what PyTorch computes") {
  for (const ReferenceCase& c : load_reference("softmax")) {
    INFO(c.name);
    const int dim = static_cast<int>(c.number("dim"));
    const bool log = c.text("function") == "log_softmax";
    const Tensor y = log ? log_softmax(c.tensor("x"), dim) : softmax(c.tensor("x"), dim);
    CHECK(all_close(y, c.tensor("y")));
    CHECK(all_close(log ? log_softmax_backward(c.tensor("dy"), y, dim)
                        : softmax_backward(c.tensor("dy"), y, dim),
                    c.tensor("dx")));
  }
}

TEST_CASE("softmax: errors") {
  const Tensor x = zeros({3, 4});
  CHECK(thrown<InvalidArgument>([] { softmax(Tensor::scalar(1), 1); }) ==
        "[softmax] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([] { softmax(arange(3)); }) ==
        "[softmax] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([] { log_softmax(Tensor()); }) ==
        "[log_softmax] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { softmax(x, 2); }).starts_with("[softmax] "));
  CHECK(thrown<InvalidArgument>([&] { softmax_backward(zeros({3}), x); }) ==
        "[softmax_backward] shapes [3] and [3, 4] differ; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { log_softmax_backward(cast(x, DType::kF64), x); }) ==
        "[log_softmax_backward] operands have dtypes f64 and f32; cast one of them");
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
      const CrossEntropyResult rows = cross_entropy_rows(layout, t);
      const auto grad =
          cross_entropy_rows_backward(d, layout, t, rows.log_sum_exp).to_vector<double>();
      const auto losses = rows.loss.to_vector<double>();
      CHECK(rows.row_weight.to_vector<double>() == std::vector<double>(6, 1.0));
      for (std::size_t row = 0; row < 6; ++row) {
        const std::size_t at =
            row * static_cast<std::size_t>(n) + static_cast<std::size_t>(target[row]);
        CHECK(losses[row] == Approx(-std::log(soft[at])).epsilon(1e-13).margin(1e-14));
        for (std::size_t i = row * static_cast<std::size_t>(n);
             i < (row + 1) * static_cast<std::size_t>(n); ++i) {
          CHECK(std::abs(grad[i] - (soft[i] - (i == at)) * scale[row]) <= 1e-14);
        }
      }
      CHECK(all_equal(cross_entropy_rows(layout, cast(t, DType::kI32)).loss, rows.loss));
    }
  }
}

CrossEntropyOptions options_of(const ReferenceCase& c) {
  const std::string& reduction = c.text("reduction");
  return {.reduction = reduction == "none"   ? LossReduction::kNone
                       : reduction == "mean" ? LossReduction::kMean
                                             : LossReduction::kSum,
          .ignore_index = static_cast<std::int64_t>(c.number("ignore_index")),
          .label_smoothing = c.number("label_smoothing"),
          .weight = c.optional("weight")};
}

TEST_CASE("cross entropy: what PyTorch computes, with every option") {
  for (const ReferenceCase& c : load_reference("cross_entropy")) {
    INFO(c.name);
    const CrossEntropyOptions options = options_of(c);
    const Tensor loss = cross_entropy(c.tensor("logits"), c.tensor("targets"), options);
    CHECK(all_close(loss, c.tensor("y")));
    CHECK(all_equal(
        cross_entropy(c.tensor("logits"), cast(c.tensor("targets"), DType::kI32), options), loss));
    const CrossEntropyResult rows =
        cross_entropy_rows(c.tensor("logits"), c.tensor("targets"), options);
    Tensor dloss = c.tensor("dy").expand({5});
    if (options.reduction == LossReduction::kMean) dloss = div(dloss, sum(rows.row_weight));
    CHECK(all_close(cross_entropy_rows_backward(dloss, c.tensor("logits"), c.tensor("targets"),
                                                rows.log_sum_exp, options),
                    c.tensor("dlogits")));
    check_dtypes(c.tensor("logits"),
                 [&](const Tensor& in) { return cross_entropy(in, c.tensor("targets"), options); });
  }
}

TEST_CASE("cross entropy: rows of any dims, ignored classes, nothing that counts") {
  const Tensor x = spread_tensor<double>({2, 3, 5}, -3, 3);
  const Tensor t = Tensor::from_vector<std::int64_t>({1, 0, 4, 2, 1, 3}, {2, 3});
  const Tensor flat =
      cross_entropy(x.view({6, 5}), t.view({6}), {.reduction = LossReduction::kNone});
  for (const Tensor& layout : layouts(x)) {
    CHECK(all_equal(cross_entropy(layout, t, {.reduction = LossReduction::kNone}),
                    flat.view({2, 3})));
  }
  CHECK(cross_entropy(x.select(0, 0).select(0, 1), t.select(0, 0).select(0, 1)).item<double>() ==
        flat.to_vector<double>()[1]);
  // The ignored index may be a class.
  const auto rows = cross_entropy(x, t, {.reduction = LossReduction::kNone, .ignore_index = 1})
                        .to_vector<double>();
  CHECK(rows[0] == 0);
  CHECK(rows[4] == 0);
  CHECK(rows[1] == flat.to_vector<double>()[1]);
  const Tensor none = full({2, 3}, -100, {.dtype = DType::kI64});
  CHECK(std::isnan(cross_entropy(x, none).item<double>()));
  CHECK(cross_entropy(x, none, {.reduction = LossReduction::kSum}).item<double>() == 0);
  const CrossEntropyResult lost = cross_entropy_rows(x, none);
  CHECK(all_equal(cross_entropy_rows_backward(full({2, 3}, std::nan(""), x.options()), x, none,
                                              lost.log_sum_exp),
                  zeros_like(x)));
  CHECK(cross_entropy(zeros({0, 3}), zeros({0}, {.dtype = DType::kI64}),
                      {.reduction = LossReduction::kSum})
            .item<float>() == 0);
}

TEST_CASE("cross entropy: a confident row loses little, and not exactly nothing") {
  const Tensor x = Tensor::from_vector<float>({1000, 990}, {1, 2});
  const auto r = cross_entropy_rows(x, Tensor::from_vector<std::int64_t>({0}, {1}));
  CHECK(r.loss.item<float>() == Approx(std::log1p(std::exp(-10.0))).epsilon(1e-2));
  CHECK(r.log_sum_exp.item<float>() == Approx(1000));
}

TEST_CASE("softmax and cross entropy: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({5000, 37}), t = targets_below(5000, 37),
               d = spread_tensor<float>({5000});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor in = cast(x, dtype);
    const auto wide = [](const Tensor& y) { return cast(y, DType::kF32).to_vector<float>(); };
    for (int dim : {0, 1}) {
      CHECK(same_for_any_threads([&] { return wide(softmax(in, dim)); }));
      CHECK(same_for_any_threads([&] { return wide(log_softmax(in, dim)); }));
      CHECK(same_for_any_threads([&] { return wide(softmax_backward(in, in, dim)); }));
      CHECK(same_for_any_threads([&] { return wide(log_softmax_backward(in, in, dim)); }));
    }
    const CrossEntropyOptions options{.label_smoothing = 0.1, .weight = spread_tensor<float>({37})};
    CHECK(same_for_any_threads([&] { return wide(cross_entropy(in, t, options)); }));
    CHECK(same_for_any_threads([&] {
      return wide(cross_entropy_rows_backward(d, in, t, cross_entropy_rows(in, t).log_sum_exp));
    }));
  }
}

TEST_CASE("cross entropy: bad targets are found by the kernel") {
  const Tensor x = zeros({3, 4}), bad = Tensor::from_vector<std::int64_t>({0, 4, 1}, {3});
  CHECK(thrown_by_kernel<InvalidArgument>([&] { cross_entropy_rows(x, bad); }) ==
        "[cross_entropy] target 4 in row 1 is outside [0, 4); targets are class indices");
  CHECK(thrown_by_kernel<InvalidArgument>(
            [&] { cross_entropy_rows_backward(zeros({3}), x, bad, zeros({3})); }) ==
        "[cross_entropy_rows_backward] target 4 in row 1 is outside [0, 4); targets are class "
        "indices");
  const DeviceStream queued = DeviceStream::create(default_device(), StreamKind::kQueued, "queued");
  StreamGuard guard(queued);
  const Tensor xq = zeros({3, 4}), badq = clone(bad);
  cross_entropy_rows(xq, badq);
  CHECK(thrown<InvalidArgument>([&] { queued.synchronize(); }) ==
        "[cross_entropy] target 4 in row 1 is outside [0, 4); targets are class indices");
}

TEST_CASE("cross entropy: errors") {
  const Tensor x = zeros({3, 4}), t = zeros({3}, {.dtype = DType::kI64});
  const auto message = [&](const Tensor& targets, const CrossEntropyOptions& options = {}) {
    return thrown<InvalidArgument>([&] { cross_entropy(x, targets, options); });
  };
  CHECK(message(zeros({3})) == "[cross_entropy] targets have dtype f32; they must be i64 or i32");
  CHECK(
      message(t.slice(0, 0, 2)) ==
      "[cross_entropy] needs logits [..., classes] and targets [...], got [3, 4] and [2]; classes "
      "are the last dim, not the second one as in PyTorch");
  CHECK(message(t, {.label_smoothing = 1.5}) ==
        "[cross_entropy] label_smoothing is 1.5; it must lie in [0, 1]");
  CHECK(message(t, {.weight = zeros({3})}) ==
        "[cross_entropy] the weight has shape [3]; logits of shape [3, 4] need one of shape [4]");
  CHECK(message(t, {.weight = arange(4)}) ==
        "[cross_entropy] needs a floating dtype, got i64; cast it first");
  CHECK(message(t, {.weight = zeros({4}, {.device = kNull})}) ==
        "[cross_entropy] operands are on " + default_device().str() +
            " and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { cross_entropy_rows(Tensor(), t); }) ==
        "[cross_entropy] logits is undefined; pass a tensor");
  const auto backward = [&](const Tensor& dloss, const Tensor& log_sum_exp) {
    return thrown<InvalidArgument>([&] { cross_entropy_rows_backward(dloss, x, t, log_sum_exp); });
  };
  CHECK(backward(zeros({2}), zeros({3})) ==
        "[cross_entropy_rows_backward] dloss has shape [2], expected [3]");
  CHECK(backward(zeros({3}), zeros({3, 1})) ==
        "[cross_entropy_rows_backward] log_sum_exp has shape [3, 1], expected [3]");
  CHECK(backward(zeros({3}, {.dtype = DType::kF64}), zeros({3})) ==
        "[cross_entropy_rows_backward] dloss has dtype f64, expected f32; cast it");
}

}  // namespace
}  // namespace tessera
