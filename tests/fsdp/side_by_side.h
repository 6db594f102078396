#pragma once

/// Training a sharded model beside an unsharded twin, whatever the placements: losses, gradients
/// and parameters are compared in every step.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/placement.h"
#include "tessera/nn/init.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

/// The elements of a whole tensor that a parameter's local() holds, along every dim.
inline Tensor part_of(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  Tensor part = whole;
  for (int d = 0; d < whole.ndim(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    part = part.slice(d, box.offset[i], box.offset[i] + box.extent[i]);
  }
  return contiguous(part);
}

inline std::vector<double> numbers_of(const Tensor& x) {
  return cast(x, DType::kF64).to_vector<double>();
}
inline double largest(const Tensor& x) {
  double worst = 0;
  for (const double value : numbers_of(x)) worst = std::max(worst, std::abs(value));
  return worst;
}
/// The largest |a - b| over the largest element of the whole tensor that b is a part of; infinity
/// where shapes differ or something is not finite.
inline double relative_error(const Tensor& a, const Tensor& b, const Tensor& whole) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<double> left = numbers_of(a), right = numbers_of(b);
  double worst = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double error = std::abs(left[i] - right[i]);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst == 0 ? 0 : worst / largest(whole);
}

/// What differs first: a name, a value, a gradient; "" when all are within `tolerance`, which is
/// relative to the largest element of each tensor. 0 asks for equal bits.
inline std::string first_difference(const nn::Module& sharded, const nn::Module& twin,
                                    double tolerance, bool gradients = true) {
  const auto compare = [tolerance](const Tensor& a, const Tensor& whole,
                                   const nn::Parameter& parameter) -> std::string {
    const Tensor b = part_of(whole, parameter);
    if (tolerance == 0) return all_equal(a, b).message;
    const double error = relative_error(a, b, whole);
    return error <= tolerance ? std::string() : fmt::format("differs by {:.2g}", error);
  };
  const auto left = sharded.named_parameters(), right = twin.named_parameters();
  if (left.size() != right.size()) return "the models have different numbers of parameters";
  for (std::size_t i = 0; i < left.size(); ++i) {
    const nn::Parameter &a = left[i].parameter, &b = right[i].parameter;
    if (left[i].name != right[i].name) return left[i].name + " against " + right[i].name;
    std::string text = compare(a.local().tensor(), b.local().tensor(), a);
    if (!text.empty()) return left[i].name + " " + text;
    if (!gradients) continue;
    if (a.grad().defined() != b.grad().defined())
      return left[i].name + ": only " + (a.grad().defined() ? "it" : "the twin") +
             " has a gradient";
    if (a.grad().defined()) text = compare(a.grad(), b.grad(), a);
    if (!text.empty()) return "the gradient of " + left[i].name + " " + text;
  }
  return {};
}

/// Where a rank stands among those that share a batch.
struct DataRank {
  int size = 1;
  int rank = 0;
};
inline DataRank data_rank(const distributed::ProcessGroup& group) {
  return {.size = group.size(), .rank = group.rank()};
}

/// This rank's rows of a batch.
inline Tensor rows_of_rank(const Tensor& batch, const DataRank& ranks) {
  const distributed::Chunk chunk = distributed::chunk_of(batch.dim(0), ranks.size, ranks.rank);
  return contiguous(batch.slice(0, chunk.begin, chunk.end));
}

/// Half the sum of squares over `rows` of the whole batch. `ranks`: how many have a part of it; the
/// mean of theirs is then the loss of the whole batch, whatever the parts.
inline Variable half_squares(const Variable& y, std::int64_t rows, int ranks = 1) {
  return mul(sum(square(y)), 0.5 * ranks / static_cast<double>(rows));
}

/// A model, and what every rank holds whole beside it. Losses are asked for by step and pass; the
/// mean of sharded_loss over the ranks is twin_loss.
struct SideBySide {
  std::string what;
  nn::Module& sharded;
  nn::Module& twin;
  std::function<Variable(int step, int pass)> sharded_loss, twin_loss;
  int steps = 3;
  int passes = 1;  ///< backwards a step; the last one reduces what the caller held back
  double tolerance = 1e-12;
  std::function<void(int pass)> before_pass = {};       ///< of the sharded model
  std::function<void(int step)> before_optimizer = {};  ///< gradients are there
};

inline void check_mean_loss(RankTest& t, const SideBySide& run, const Variable& loss,
                            const Variable& expected) {
  const Tensor mean = clone(loss.tensor());
  distributed::all_reduce(t.group(), std::span(&mean, 1), distributed::ReduceOp::kSum, "loss");
  div_(mean, t.size());
  const double error = relative_error(mean, expected.tensor(), expected.tensor());
  t.check(error <= run.tolerance, "{}: the loss differs by {:.2g}", run.what, error);
}

/// Steps of SGD with momentum on both. Initialize both before.
inline void train_side_by_side(RankTest& t, const SideBySide& run) {
  nn::optim::SGD sharded_sgd(run.sharded.parameters(), kSgd);
  nn::optim::SGD twin_sgd(run.twin.parameters(), kSgd);
  const auto check = [&](double tolerance, const std::string& when) {
    const std::string difference = first_difference(run.sharded, run.twin, tolerance);
    return t.check(difference.empty(), "{}, {}: {}", run.what, when, difference);
  };
  check(0, "at the start");
  for (int step = 0; step < run.steps; ++step) {
    for (int pass = 0; pass < run.passes; ++pass) {
      if (run.before_pass) run.before_pass(pass);
      const Variable loss = run.sharded_loss(step, pass), expected = run.twin_loss(step, pass);
      check_mean_loss(t, run, loss, expected);
      backward(loss);
      backward(expected);
    }
    if (run.before_optimizer) run.before_optimizer(step);
    if (!check(run.tolerance, "step " + std::to_string(step))) return;
    sharded_sgd.step();
    twin_sgd.step();
    sharded_sgd.zero_grad();
    twin_sgd.zero_grad();
  }
  check(run.tolerance, "at the end");
}

/// A batch of rows a step and pass.
struct RowBatch {
  std::int64_t rows = 11;
  std::int64_t width = 0;
  DataRank ranks;
  DType dtype = DType::kF64;

  Tensor all(int step, int pass) const {
    return random_rows(rows, width, dtype, static_cast<std::uint64_t>(step) * 16 + pass);
  }
  Variable mine(int step, int pass) const { return Variable(rows_of_rank(all(step, pass), ranks)); }
};

/// Of models that make a Variable of a Variable: half the sum of squares of the result.
template <class Sharded, class Twin>
SideBySide over_rows(std::string what, Sharded& sharded, Twin& twin, const RowBatch& batch) {
  return {.what = std::move(what),
          .sharded = sharded,
          .twin = twin,
          .sharded_loss =
              [&sharded, batch](int step, int pass) {
                return half_squares(sharded(batch.mine(step, pass)), batch.rows, batch.ranks.size);
              },
          .twin_loss =
              [&twin, batch](int step, int pass) {
                return half_squares(twin(Variable(batch.all(step, pass))), batch.rows);
              }};
}

/// Equal initial values on both sides.
inline void initialize_both(nn::Module& sharded, nn::Module& twin, std::uint64_t seed = 3) {
  nn::initialize(sharded, {.seed = seed});
  nn::initialize(twin, {.seed = seed});
}

}  // namespace tessera::testing
