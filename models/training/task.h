#pragma once

/// A task for a Trainer: the source of the samples, and their loss. One object per rank, used by
/// the rank's own thread; every rank makes the same calls.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/distributed/process_group.h"
#include "tessera/models/training/metrics.h"
#include "tessera/nn/data/batch_order.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models {

/// The part of one step's batch that this rank computes.
struct BatchShare {
  std::int64_t samples = 0;       ///< samples in the step, over all ranks
  std::int64_t tokens = 0;        ///< tokens in the step, over all ranks; 0: a task without tokens
  std::int64_t first_sample = 0;  ///< position in the batch of this rank's first sample
  std::int64_t rows = 0;          ///< samples of this rank: may be 0
  std::int64_t padded_rows = 0;   ///< the largest number of rows of any rank
  std::int64_t count = 0;         ///< this rank's samples or tokens in the mean loss
};

/// The share of a rank at a position in the data. Its samples count in the mean loss.
BatchShare share_at(const nn::data::BatchPosition& position);

/// The loss of some rows.
struct LossSum {
  Variable sum;             ///< 0-d: the sum over the rows' samples or tokens
  Variable auxiliary = {};  ///< 0-d, added to the mean: the same on all ranks. Undefined: none.
};

class Task {
 public:
  virtual ~Task() = default;
  virtual nn::Module& module() = 0;
  /// The number of training steps in which every sample is seen once.
  virtual std::int64_t steps_per_epoch() const = 0;
  /// Fetches the batch of a step, counted from 1. Steps may come in any order.
  virtual BatchShare load(std::int64_t step) = 0;
  /// The tensors of the last loaded share that loss() reads, on its device. If a later share is at
  /// the same addresses, a CUDA graph of this share's computation reads the later share.
  virtual std::vector<Tensor> inputs() const { return {}; }
  /// Forward over the rows [begin, end) of the last loaded share, possibly none. The task must not
  /// keep a handle to the logits afterwards: backward then needs no memory for their gradient, see
  /// cross_entropy in autograd/ops/nn.h.
  virtual LossSum loss(std::int64_t begin, std::int64_t end) = 0;
  /// What determines the samples of each step, as a text: the data and their order. A run that goes on
  /// from a checkpoint compares it with that of the run that saved it. May read all of the data; called
  /// on rank 0 alone. Empty: not compared.
  virtual std::string data_fingerprint() const { return {}; }
  /// Evaluates all of the evaluation data, in evaluation mode and without gradients. The trainer
  /// fills in `step`. Collective.
  virtual EvalMetrics evaluate() = 0;
};

/// The rows of a step's share on the model's device. Tasks load into it.

/// Only one thread may use it.
class DeviceRows {
 public:
  /// Copies rows [n, ...] from the host to the device. On a GPU the address stays the same as long
  /// as no share is larger; copies are in stream order.
  void load(const Tensor& rows, Device device);
  /// The rows that were loaded last.
  const Tensor& all() const { return rows_; }
  Tensor part(std::int64_t begin, std::int64_t end) const {
    return rows_.narrow(0, begin, end - begin);
  }

 private:
  bool has_room_for(const Tensor& rows) const;

  Tensor buffer_;  // only on a GPU
  Tensor rows_;
};

/// For trainers and tasks: gathers numbers of every rank.

/// Every rank's values, in rank order; every rank has the same number. Collective; blocks the host.
std::vector<double> gather_figures(distributed::ProcessGroup& group,
                                   std::span<const double> values);

/// The value of a 0-d tensor of any floating-point dtype. Blocks the host.
double host_value(const Tensor& tensor);

}  // namespace tessera::models
