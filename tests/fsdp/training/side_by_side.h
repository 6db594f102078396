#pragma once

/// Trains a sharded model beside an unsharded reference, for any placements, and compares losses,
/// gradients and parameters in every step.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/init.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

/// The elements of a full tensor that a parameter's local() holds, along every dim.
Tensor part_of(const Tensor& whole, const nn::Parameter& parameter);

std::vector<double> numbers_of(const Tensor& x);
double largest(const Tensor& x);
/// The largest |a - b| divided by the largest element of the full tensor that b is a part of;
/// infinity if shapes differ or a value is not finite.
double relative_error(const Tensor& a, const Tensor& b, const Tensor& whole);

/// The first difference: a name, a value, a gradient; "" if all are within `tolerance`, which is
/// relative to the largest element of each tensor. 0 requires equal bits.
std::string first_difference(const nn::Module& sharded, const nn::Module& twin, double tolerance,
                             bool gradients = true);

/// A rank's index among the ranks that share a batch.
struct DataRank {
  int size = 1;
  int rank = 0;
};
DataRank data_rank(const distributed::ProcessGroup& group);

/// This rank's rows of a batch.
Tensor rows_of_rank(const Tensor& batch, const DataRank& ranks);

/// Half the sum of squares over `rows` of the whole batch. `ranks`: the number of ranks with a part
/// of it; the mean of their losses is then the loss of the whole batch, for any parts.
Variable half_squares(const Variable& y, std::int64_t rows, int ranks = 1);

/// A sharded model and its unsharded reference. Losses depend on step and pass; the mean of
/// sharded_loss over the ranks is twin_loss.
struct SideBySide {
  std::string what;
  nn::Module& sharded;
  nn::Module& twin;
  std::function<Variable(int step, int pass)> sharded_loss, twin_loss;
  int steps = 3;
  int passes = 1;  ///< backwards per step; the last one reduces the gradients that the caller held
                   ///< back
  double tolerance = 1e-12;
  std::function<void(int pass)> before_pass = {};       ///< called with the sharded model's pass
  std::function<void(int step)> before_optimizer = {};  ///< called when the gradients are complete
};

void check_mean_loss(RankTest& t, const SideBySide& run, const Variable& loss,
                     const Variable& expected);

/// Steps of SGD with momentum on both. Initialize both before.
void train_side_by_side(RankTest& t, const SideBySide& run);

/// A batch of rows for each step and pass.
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

/// For models from a Variable to a Variable: half the sum of squares of the result.
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

/// Equal initial values in both models.
void initialize_both(nn::Module& sharded, nn::Module& twin, std::uint64_t seed = 3);

}  // namespace tessera::testing
