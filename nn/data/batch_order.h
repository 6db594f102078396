#pragma once

/// Which samples of a data set each batch of a run has, and which of these each rank. A pure
/// function of the options: a batch needs no replay of the batches before it.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::nn::data {

struct BatchOrderOptions {
  std::int64_t batch = 1;  ///< samples per batch, over all ranks
  std::uint64_t seed = 1;
  bool shuffle = true;     ///< false: every epoch is 0, 1, 2, ...
  bool drop_last = false;  ///< leaves out the last batch of an epoch if it has fewer samples
};

/// How a batch is divided among ranks: by the chunk rule, so ceil(samples / ranks) rows each, and
/// fewer or none for the last ranks.
struct BatchSplit {
  int ranks = 1;
  int rank = 0;
  /// Each rank has equally many rows: the missing ones repeat the batch's samples from its first
  /// one on.
  bool pad = false;
};

/// One rank's part of a batch.
struct BatchPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;         ///< in the epoch, from 0
  std::int64_t step = 0;          ///< over all epochs, from 1
  std::int64_t samples = 0;       ///< of all ranks, each counted once
  std::int64_t first_sample = 0;  ///< position in the batch of this rank's first row
  std::int64_t rows = 0;          ///< of this rank: may be 0 without padding
  std::int64_t padded_rows = 0;   ///< the largest number of rows of any rank
};

/// The order of the samples in each epoch, and its division into batches; the last batch of an epoch
/// may be shorter. Equal seeds, epochs and numbers of samples give equal orders on any number of ranks.
/// Not thread-safe.
class BatchOrder {
 public:
  /// Throws InvalidArgument for a negative number of samples or a batch below 1.
  BatchOrder(std::int64_t samples, const BatchOrderOptions& options);

  /// 0 where there are no samples, or with drop_last fewer than one batch.
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The samples of a step, over all ranks. Steps are counted from 1 over all epochs. Valid until
  /// the next call. Throws InvalidArgument for a step below 1, and where epochs have no steps.
  std::span<const std::int64_t> samples_of(std::int64_t step);

  /// A rank's part of a step. Does not change the order, so any thread may call it. Throws as
  /// samples_of(), and for a rank that does not exist.
  BatchPosition position_of(std::int64_t step, const BatchSplit& split) const;
  /// The samples of a rank's part, row by row.
  std::vector<std::int64_t> rows_of(std::int64_t step, const BatchSplit& split);

 private:
  void check_step(std::int64_t step) const;

  BatchOrderOptions options_;
  std::int64_t samples_;
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace tessera::nn::data
