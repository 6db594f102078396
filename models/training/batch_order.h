#pragma once

/// The samples that each step of a run trains on. They depend only on the seed and the epoch, never
/// on the ranks.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::models {

/// Each epoch is a new random order of all samples, divided into batches; its last batch may be
/// shorter.
class BatchOrder {
 public:
  /// Throws InvalidArgument for fewer than 1 sample or a batch below 1.
  BatchOrder(std::int64_t samples, std::int64_t batch, std::uint64_t seed);

  std::int64_t steps_per_epoch() const;
  /// The samples of a step. Steps are counted from 1 over all epochs. Valid until the next call.
  std::span<const std::int64_t> samples_of(std::int64_t step);

 private:
  std::int64_t batch_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::int64_t samples_;
  std::vector<std::int64_t> order_;
};

}  // namespace tessera::models
