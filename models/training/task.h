#pragma once

/// What a Trainer learns: where samples come from, and what is lost on them. One object per rank,
/// used by its thread; every rank makes the same calls.

#include <cstdint>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/training/metrics.h"
#include "tessera/nn/module.h"

namespace tessera::models {

/// The part of one step's batch that this rank computes.
struct BatchShare {
  std::int64_t samples = 0;       ///< of the step, over all ranks
  std::int64_t tokens = 0;        ///< of the step, over all ranks; 0: a task without tokens
  std::int64_t first_sample = 0;  ///< place in the batch of this rank's first sample
  std::int64_t rows = 0;          ///< samples of this rank: may be 0
  std::int64_t padded_rows = 0;   ///< the most that a rank has
  std::int64_t count = 0;         ///< what the loss is the mean over, of this rank
};

/// The loss of some rows.
struct LossSum {
  Variable sum;             ///< 0-d: added over the rows' samples or tokens
  Variable auxiliary = {};  ///< 0-d, added to the mean: the same on all ranks. Undefined: nothing.
};

class Task {
 public:
  virtual ~Task() = default;
  virtual nn::Module& module() = 0;
  /// Training steps after which every sample was seen once.
  virtual std::int64_t steps_per_epoch() const = 0;
  /// Fetches the batch of a step, counted from 1. Any order of steps.
  virtual BatchShare load(std::int64_t step) = 0;
  /// What loss() reads of the share that was loaded last, on its device. Where a later share is at
  /// the same place, a CUDA graph of this one's computation reads the later one.
  virtual std::vector<Tensor> inputs() const { return {}; }
  /// Forward over the rows [begin, end) of the share that was loaded last; perhaps none. Keep no
  /// handle of logits beyond it: backward then needs no memory for their gradient, see
  /// cross_entropy in autograd/ops/nn.h.
  virtual LossSum loss(std::int64_t begin, std::int64_t end) = 0;
  /// Over all of the data kept for it, in evaluation mode and without gradients. `step` is left for
  /// the trainer to fill. Collective.
  virtual EvalMetrics evaluate() = 0;
};

}  // namespace tessera::models
