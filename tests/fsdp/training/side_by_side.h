#pragma once

/// Trains a sharded model beside an unsharded reference, for any placements, and compares losses,
/// gradients and parameters in every step.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collective_counts.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/nn/init.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/reference.h"
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
std::string first_difference(const nn::Module& sharded, const nn::Module& reference,
                             double tolerance, bool gradients = true);

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
/// sharded_loss over the ranks is reference_loss.
struct SideBySide {
  std::string what;
  nn::Module& sharded;
  nn::Module& reference;
  std::function<Variable(int step, int pass)> sharded_loss, reference_loss;
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
template <class Sharded, class Reference>
SideBySide over_rows(std::string what, Sharded& sharded, Reference& reference,
                     const RowBatch& batch) {
  return {.what = std::move(what),
          .sharded = sharded,
          .reference = reference,
          .sharded_loss =
              [&sharded, batch](int step, int pass) {
                return half_squares(sharded(batch.mine(step, pass)), batch.rows, batch.ranks.size);
              },
          .reference_loss =
              [&reference, batch](int step, int pass) {
                return half_squares(reference(Variable(batch.all(step, pass))), batch.rows);
              }};
}

/// Equal initial values in both models.
void initialize_both(nn::Module& sharded, nn::Module& reference, std::uint64_t seed = 3);

// Data parallelism in one process, without sharding: the bitwise reference.

/// Keeps one gradient per rank, with its passes added in order; adds these in rank order; scales
/// the sum once, by 1 / ranks. One model computes for all ranks, or each rank has one of its own
/// with equal parameters (if forwards change state, as batch norm does).
class OneProcess {
 public:
  OneProcess(std::vector<nn::Module*> models, int ranks)
      : models_(std::move(models)), ranks_(ranks) {}

  /// The loss of a rank's pass, with models[rank] or the only model.
  using LossOf = std::function<Variable(int rank, int pass)>;

  /// Computes the gradients of one step in every model.
  void run(int passes, const LossOf& loss_of) {
    std::vector<Tensor> sum;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int pass = 0; pass < passes; ++pass) backward(loss_of(rank, pass));
      add_to(sum, take_gradients(model(rank)));
    }
    for (nn::Module* each : models_) {
      std::size_t i = 0;
      for (nn::Parameter& parameter : each->parameters()) {
        const Tensor& total = sum[i++];
        if (total.defined()) parameter.set_grad(mul(total, 1.0 / ranks_));
      }
    }
  }

 private:
  nn::Module& model(int rank) const {
    return *models_[models_.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
  }
  static std::vector<Tensor> take_gradients(const nn::Module& model) {
    std::vector<Tensor> out;
    for (nn::Parameter& parameter : model.parameters()) {
      out.push_back(parameter.grad());
      parameter.zero_grad();
    }
    return out;
  }
  static void add_to(std::vector<Tensor>& sum, std::vector<Tensor> gradients) {
    if (sum.empty()) {
      sum = std::move(gradients);
      return;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (sum[i].defined()) sum[i] = add(sum[i], gradients[i]);
    }
  }

  std::vector<nn::Module*> models_;
  int ranks_;
};

/// The trace of one step: collectives by kind and group, events in order.
class StepTrace {
 public:
  /// Returns the trace of `body` on this rank.
  template <class Body>
  static StepTrace of(RankTest&, Body&& body) {
    StepTrace out;
    const TraceScope recording(out.trace_);
    body();
    return out;
  }

  /// Collectives of one kind, by the group that issued them.
  std::map<std::string, int> by_group(const std::string& op) const {
    std::map<std::string, int> out;
    for (const auto& row : distributed::CollectiveCounts(trace_).rows()) {
      if (row.op == op) out[row.label] += static_cast<int>(row.collectives);
    }
    return out;
  }
  int count(const std::string& op) const {
    const distributed::CollectiveCounts counts(trace_);
    return static_cast<int>(counts.of({.op = op, .alone = true}).collectives);
  }
  std::vector<CollectiveRecord> collectives(const std::string& op) const {
    std::vector<CollectiveRecord> out = trace_.all<CollectiveRecord>();
    std::erase_if(out, [&op](const CollectiveRecord& record) { return record.op != op; });
    return out;
  }
  /// "phase group" of gathers and post-backwards.
  std::vector<std::string> events() const {
    std::vector<std::string> out = trace_.annotations(fsdp::kAnnotationDomain);
    std::erase_if(out, [](const std::string& event) {
      return event.starts_with(std::string(fsdp::kReshardPhase) + " ");
    });
    return out;
  }

 private:
  ExecutionTrace trace_;
};

inline std::string text_of(const std::vector<std::string>& events) {
  std::string out;
  for (const std::string& event : events) out += event + "; ";
  return out;
}

}  // namespace tessera::testing
