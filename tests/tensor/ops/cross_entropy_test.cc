// The derivative of cross entropy written over the logits: bits, layouts, memory, errors. Classes in
// parts.

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr const char* kName = "cross_entropy_rows_backward_";

// Every third row is ignored.
Tensor some_targets(const Shape& shape, std::int64_t classes) {
  std::vector<std::int64_t> t;
  for (std::int64_t row = 0; row < shape.numel(); ++row)
    t.push_back(row % 3 == 2 ? -100 : (row * 7 + 3) % classes);
  return Tensor::from_vector(t, shape);
}

void check_both_forms(const Tensor& x, const CrossEntropyOptions& options) {
  const Shape rows = x.shape().without(x.ndim() - 1);
  const Tensor t = some_targets(rows, x.dim(-1));
  for (const Tensor& logits : layouts(x)) {
    const Tensor log_sum_exp = cross_entropy_rows(logits, t, options).log_sum_exp;
    const Tensor d = cast(spread_tensor<double>(rows), log_sum_exp.dtype());
    const Tensor expected = cross_entropy_rows_backward(d, logits, t, log_sum_exp, options);
    const std::uint64_t version = logits.version();
    cross_entropy_rows_backward_(logits, d, t, log_sum_exp, options);
    CHECK(all_equal(contiguous(logits), expected));
    CHECK(logits.version() > version);
    CHECK(std::string(logits.last_writer()) == kName);
  }
}

TEST_CASE("cross entropy: the gradient over the logits has the bits of one of its own") {
  for (const DType dtype : kFloatingDTypes) {
    for (const Shape& shape :
         {Shape{7}, Shape{6, 1}, Shape{6, 37}, Shape{5, 1030}, Shape{2, 3, 70}}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const bool weighted : {false, true}) {
          INFO(dtype_name(dtype) << " " << shape.str() << " " << smoothing << " " << weighted);
          const Tensor weight = weighted ? spread_tensor<double>({shape.back()}, 0.5, 2) : Tensor();
          check_both_forms(cast(spread_tensor<double>(shape, -4, 4), dtype),
                           {.label_smoothing = smoothing, .weight = weight});
        }
      }
    }
  }
}

TEST_CASE("cross entropy: the gradient over a part of a tensor leaves the rest") {
  const Tensor frame = full({6, 40}, 7), logits = frame.slice(1, 2, 39);
  copy_(logits, spread_tensor<float>({6, 37}));
  const Tensor t = some_targets({6}, 37);
  cross_entropy_rows_backward_(logits, full({6}, 1), t, cross_entropy_rows(logits, t).log_sum_exp);
  CHECK(logits.select(1, 3).to_vector<float>()[0] < 0);  // the target of row 0
  CHECK(all_equal(contiguous(frame.slice(1, 0, 2)), full({6, 2}, 7)));
  CHECK(all_equal(contiguous(frame.slice(1, 39, 40)), full({6, 1}, 7)));
}

// Bytes of activations that `work` allocates in addition to the live ones.
template <class Work>
std::int64_t growth(const Work& work) {
  MemoryCounters& memory = current_rank_context()->memory();
  memory.reset_peak();
  const std::int64_t before = memory.current()[MemoryCategory::kActivation];
  work();
  return memory.peak()[MemoryCategory::kActivation] - before;
}

TEST_CASE("cross entropy: the memory of the derivative") {
  const Tensor frame = full({4, 9, 64}, 0.5), t = zeros({4, 8}, {.dtype = DType::kI64});
  const Tensor d = zeros({4, 8}), log_sum_exp = zeros({4, 8}), whole = full({4, 8, 64}, 0.5);
  const Tensor part = frame.slice(1, 0, 8);  // its rows need a copy
  constexpr std::int64_t kBytes = 4 * 8 * 64 * 4;
  CHECK(growth([&] { cross_entropy_rows_backward(d, whole, t, log_sum_exp); }) == kBytes);
  CHECK(growth([&] { cross_entropy_rows_backward(d, part, t, log_sum_exp); }) == kBytes);
  CHECK(growth([&] { cross_entropy_rows_backward_(whole, d, t, log_sum_exp); }) == 0);
  CHECK(growth([&] { cross_entropy_rows_backward_(part, d, t, log_sum_exp); }) == kBytes);
}

TEST_CASE("cross entropy over the logits: errors") {
  const Tensor x = zeros({3, 4}), t = zeros({3}, {.dtype = DType::kI64}), rows = zeros({3});
  const auto message = [&](const Tensor& logits, const Tensor& dloss, const Tensor& targets,
                           const Tensor& log_sum_exp, const CrossEntropyOptions& options = {}) {
    return thrown<InvalidArgument>(
        [&] { cross_entropy_rows_backward_(logits, dloss, targets, log_sum_exp, options); });
  };
  const std::string tag = "[cross_entropy_rows_backward_] ";
  CHECK(message(zeros({1, 4}).expand({3, 4}), rows, t, rows) ==
        tag + "dim 0 of the tensor written to repeats one element 3 times; clone() it first");
  const auto shared = [&](const std::string& name) {
    return tag + "the memory of " + name +
           " is that of the logits, which are written over; clone() it";
  };
  const Tensor column = x.select(1, 1);
  CHECK(message(x, column, t, rows) == shared("dloss"));
  CHECK(message(x, rows, t, column) == shared("log_sum_exp"));
  CHECK(message(x, rows, t, rows, {.weight = x.select(0, 2)}) == shared("the weight"));
  const Tensor overlaid = Tensor::over(x.storage(), {3}, {1}, 2, DType::kI32);
  CHECK(message(x, rows, overlaid, rows) == shared("targets"));
  CHECK(message(x, zeros({2}), t, rows) == tag + "dloss has shape [2], expected [3]");
  CHECK(message(x, rows, zeros({3}), rows) ==
        tag + "targets have dtype f32; they must be i64 or i32");
  CHECK(all_equal(x, zeros({3, 4})));
  const Tensor bad = Tensor::from_vector<std::int64_t>({0, 4, 1}, {3});
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          cross_entropy_rows_backward_(x, rows, bad, rows);
        }) == tag + "target 4 in row 1 is outside [0, 4); targets are class indices");
}

}  // namespace

// Cross entropy whose classes are in parts.

namespace {

struct PartCase {
  Tensor logits;
  Tensor targets;
  CrossEntropyOptions options;
};

// The terms of columns [begin, end) by the formula, in f64, with p = softmax over these columns.
struct PartRow {
  double loss = 0, log_sum_exp = 0, row_weight = 0;
};
PartRow expected_row(const PartCase& c, std::int64_t row, std::int64_t begin, std::int64_t end) {
  const auto x = cast(c.logits, DType::kF64).select(0, row).to_vector<double>();
  const std::int64_t target = c.targets.to_vector<std::int64_t>()[static_cast<std::size_t>(row)];
  if (target == c.options.ignore_index) return {};
  const std::vector<double> weights = c.options.weight.defined()
                                          ? cast(c.options.weight, DType::kF64).to_vector<double>()
                                          : std::vector<double>(x.size(), 1);
  const double s = c.options.label_smoothing;
  double sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += std::exp(x[static_cast<std::size_t>(i)]);
  PartRow out{.log_sum_exp = std::log(sum)};
  for (std::int64_t i = begin; i < end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double away = weights[at] * (out.log_sum_exp - x[at]);
    if (i == target) out.row_weight = weights[at];
    out.loss += (i == target ? (1 - s) * away : 0) + s / static_cast<double>(x.size()) * away;
  }
  return out;
}

bool is_ignored(const PartCase& c, std::int64_t row) {
  return c.targets.to_vector<std::int64_t>()[static_cast<std::size_t>(row)] ==
         c.options.ignore_index;
}

void check_part(const PartCase& c, std::int64_t begin, std::int64_t end) {
  INFO(dtype_name(c.logits.dtype())
       << " [" << begin << ", " << end << ") of " << c.logits.shape().str() << " "
       << c.options.label_smoothing << c.options.weight.defined());
  const ClassPart part{.first = begin, .classes = c.logits.dim(1)};
  const Tensor own = c.logits.slice(1, begin, end);
  const CrossEntropyResult rows = cross_entropy_rows(own, c.targets, c.options, part);
  std::vector<double> loss, log_sum_exp, weight;
  for (std::int64_t row = 0; row < c.logits.dim(0); ++row) {
    const PartRow expected = expected_row(c, row, begin, end);
    loss.push_back(expected.loss);
    log_sum_exp.push_back(expected.log_sum_exp);
    weight.push_back(expected.row_weight);
  }
  const Tolerance tolerance = default_tolerance(rows.loss.dtype());
  const auto check = [&](const Tensor& values, const std::vector<double>& expected) {
    const Shape shape{static_cast<std::int64_t>(expected.size())};
    CHECK(all_close(values, cast(Tensor::from_vector(expected, shape), values.dtype()), tolerance));
  };
  check(rows.loss, loss);
  check(add(rows.largest, rows.log_sum_exp), log_sum_exp);
  for (std::int64_t row = 0; row < c.logits.dim(0); ++row) {
    if (is_ignored(c, row)) continue;
    CHECK(
        all_equal(rows.largest.select(0, row), cast(amax(own.select(0, row)), rows.loss.dtype())));
  }
  check(rows.row_weight, weight);

  // The derivative has the columns that the whole one has.
  const Tensor sums = cross_entropy_rows(c.logits, c.targets, c.options).log_sum_exp;
  const Tensor d = cast(spread_tensor<double>({c.logits.dim(0)}), sums.dtype());
  const Tensor whole = cross_entropy_rows_backward(d, c.logits, c.targets, sums, c.options);
  const Tensor columns = contiguous(whole.slice(1, begin, end));
  CHECK(all_close(cross_entropy_rows_backward(d, own, c.targets, sums, c.options, part), columns));
  const Tensor over = clone(own);
  cross_entropy_rows_backward_(over, d, c.targets, sums, c.options, part);
  CHECK(all_close(over, columns));
}

TEST_CASE("cross entropy: the terms of a part of the classes, and their derivative") {
  for (const DType dtype : kFloatingDTypes) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const bool weighted : {false, true}) {
        const PartCase c{
            .logits = cast(spread_tensor<double>({7, 37}, -4, 4), dtype),
            .targets = some_targets({7}, 37),
            .options = {.label_smoothing = smoothing,
                        .weight = weighted ? spread_tensor<double>({37}, 0.5, 2) : Tensor()}};
        for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                 {0, 13}, {13, 26}, {26, 37}, {5, 6}, {0, 37}})
          check_part(c, begin, end);
      }
    }
  }
}

TEST_CASE("cross entropy: a part that has no class, only infinite logits, or NaN") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor t = Tensor::from_vector<std::int64_t>({1, 4, -100}, {3});
  const auto rows = [&](const Tensor& x, std::int64_t first) {
    return cross_entropy_rows(x, t, {.label_smoothing = 0.1}, {.first = first, .classes = 6});
  };
  for (const CrossEntropyResult& none :
       {rows(zeros({3, 0}), 6), rows(full({3, 2}, -kInfinity), 4)}) {
    CHECK(all_equal(none.loss, zeros({3})));
    const std::vector<float> low = {-static_cast<float>(kInfinity), -static_cast<float>(kInfinity),
                                    0};
    CHECK(none.log_sum_exp.to_vector<float>() == low);
    CHECK(none.largest.to_vector<float>() == low);
  }
  CHECK(std::isnan(rows(full({3, 2}, std::nan("")), 4).log_sum_exp.to_vector<float>()[0]));
  CHECK(std::isnan(rows(full({3, 2}, kInfinity), 4).log_sum_exp.to_vector<float>()[0]));
  // All classes: as softmax.
  const Tensor all = full({3, 6}, -kInfinity);
  CHECK(std::isnan(cross_entropy_rows(all, t).log_sum_exp.to_vector<float>()[0]));
  CHECK_FALSE(cross_entropy_rows(all, t).largest.defined());
  const Tensor d = full({3}, 1), sums = zeros({3});
  CHECK(cross_entropy_rows_backward(d, zeros({3, 0}), t, sums, {}, {.first = 6, .classes = 6})
            .shape() == Shape{3, 0});
}

TEST_CASE("cross entropy: parts that do not lie in the classes, and targets of another part") {
  const Tensor x = zeros({3, 4}), t = Tensor::from_vector<std::int64_t>({0, 4, 9}, {3});
  const auto message = [&](const ClassPart& part, const CrossEntropyOptions& options = {}) {
    return thrown<InvalidArgument>([&] { cross_entropy_rows(x, t, options, part); });
  };
  const std::string text = "[cross_entropy] logits of shape [3, 4] are 4 classes from ";
  CHECK(message({.first = 7, .classes = 10}) ==
        text + "7 on, of 10 in all parts; they must lie in [0, 10)");
  CHECK(message({.first = -1, .classes = 10}) ==
        text + "-1 on, of 10 in all parts; they must lie in [0, 10)");
  CHECK(message({.first = 1}) == text + "1 on, of 0 in all parts; they must lie in [0, 0)");
  CHECK(message({.classes = 10}, {.weight = zeros({4})}) ==
        "[cross_entropy] the weight has shape [4]; logits of shape [3, 4] need one of shape [10]");
  CHECK(thrown<InvalidArgument>([&] {
          cross_entropy_rows_backward_(x, zeros({3}), t, zeros({3}), {},
                                       {.first = 7, .classes = 10});
        }) ==
        "[cross_entropy_rows_backward_] logits of shape [3, 4] are 4 classes from 7 on, of 10 "
        "in all parts; they must lie in [0, 10)");
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          cross_entropy_rows(x, t, {}, {.first = 4, .classes = 9});
        }) == "[cross_entropy] target 9 in row 2 is outside [0, 9); targets are class indices");
}

}  // namespace

// Norms of a sum with a residual, in one kernel.

using namespace testing;

// One kernel with the bits of two.
TEST_CASE("norms of sums: the bits of an addition and then a norm, in every dtype and layout") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    const Tensor w = cast(spread_tensor<double>({33}, 0.5, 2), dtype),
                 b = cast(spread_tensor<double>({33}), dtype),
                 x = cast(spread_tensor<double>({5, 4, 33}, -1, 3), dtype),
                 r = cast(spread_tensor<double>({4, 5, 33}).transpose(0, 1), dtype);
    const Tensor sum = add(x, r);
    const AddNormResult layer = add_layer_norm_forward(x, r, w, b, {.eps = 0.1});
    const NormResult plain_layer = layer_norm_forward(sum, w, b, {.eps = 0.1});
    CHECK(all_equal(layer.sum, sum));
    CHECK(all_equal(layer.y, plain_layer.y));
    CHECK(all_equal(layer.statistics.mean, plain_layer.statistics.mean));
    CHECK(all_equal(layer.statistics.rstd, plain_layer.statistics.rstd));
    const AddNormResult rms = add_rms_norm_forward(x, r, Tensor(), {.dims = 2});
    const NormResult plain_rms = rms_norm_forward(sum, Tensor(), {.dims = 2});
    CHECK(all_equal(rms.sum, sum));
    CHECK(all_equal(rms.y, plain_rms.y));
    CHECK(all_equal(rms.statistics.rstd, plain_rms.statistics.rstd));
    CHECK_FALSE(rms.statistics.mean.defined());
  }
  CHECK(add_rms_norm_forward(zeros({0, 4}), zeros({0, 4}), Tensor()).sum.shape() == Shape{0, 4});
}

}  // namespace tessera
