#include "tessera/nn/data/batch_order.h"

#include <algorithm>
#include <numeric>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/random.h"

namespace tessera::nn::data {
namespace {

constexpr const char* kWhere = "batch_order";

}  // namespace

BatchOrder::BatchOrder(std::int64_t samples, const BatchOrderOptions& options)
    : options_(options), samples_(samples) {
  TESSERA_CHECK(samples >= 0, kWhere, "{} samples; it must be 0 or more", samples);
  TESSERA_CHECK(options.batch >= 1, kWhere, "the batch is {}; it must be at least 1",
                options.batch);
  steps_per_epoch_ = samples / options.batch;
  if (!options.drop_last && samples % options.batch != 0) ++steps_per_epoch_;
}

void BatchOrder::check_step(std::int64_t step) const {
  TESSERA_CHECK(step >= 1, kWhere, "step {}; steps count from 1", step);
  TESSERA_CHECK(steps_per_epoch_ > 0, kWhere,
                "{} samples in batches of {}{} are no batch; give at least {}", samples_,
                options_.batch, options_.drop_last ? " with drop_last" : "",
                options_.drop_last ? options_.batch : 1);
}

std::span<const std::int64_t> BatchOrder::samples_of(std::int64_t step) {
  check_step(step);
  const std::int64_t epoch = (step - 1) / steps_per_epoch_;
  if (epoch_ < 0 || (options_.shuffle && epoch != epoch_)) {
    if (options_.shuffle) {
      order_ = random::permutation(
          samples_, random::named_key(options_.seed, fmt::format("samples of epoch {}", epoch)));
    } else {
      order_.resize(static_cast<std::size_t>(samples_));
      std::iota(order_.begin(), order_.end(), std::int64_t{0});
    }
    epoch_ = epoch;
  }
  const std::int64_t begin = (step - 1) % steps_per_epoch_ * options_.batch;
  const std::int64_t end = std::min(samples_, begin + options_.batch);
  return std::span(order_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(end - begin));
}

BatchPosition BatchOrder::position_of(std::int64_t step, const BatchSplit& split) const {
  check_step(step);
  TESSERA_CHECK(split.ranks >= 1 && split.rank >= 0 && split.rank < split.ranks, kWhere,
                "rank {} of {} ranks", split.rank, split.ranks);
  BatchPosition position{
      .epoch = (step - 1) / steps_per_epoch_, .batch = (step - 1) % steps_per_epoch_, .step = step};
  position.samples = std::min(options_.batch, samples_ - position.batch * options_.batch);
  position.padded_rows = chunk_sizes(position.samples, split.ranks).front();
  const std::int64_t begin = split.rank * position.padded_rows;
  position.first_sample = split.pad ? begin : std::min(position.samples, begin);
  position.rows = split.pad
                      ? position.padded_rows
                      : std::min(position.samples - position.first_sample, position.padded_rows);
  return position;
}

std::vector<std::int64_t> BatchOrder::rows_of(std::int64_t step, const BatchSplit& split) {
  const BatchPosition position = position_of(step, split);
  const std::span<const std::int64_t> samples = samples_of(step);
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(position.rows));
  for (std::int64_t row = 0; row < position.rows; ++row)
    rows.push_back(
        samples[static_cast<std::size_t>((position.first_sample + row) % position.samples)]);
  return rows;
}

}  // namespace tessera::nn::data
