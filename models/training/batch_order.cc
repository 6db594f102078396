#include "tessera/models/training/batch_order.h"

#include <algorithm>

#include "tessera/tensor/check.h"
#include "tessera/tensor/random.h"

namespace tessera::models {

BatchOrder::BatchOrder(std::int64_t samples, std::int64_t batch, std::uint64_t seed)
    : batch_(batch), seed_(seed), samples_(samples) {
  TESSERA_CHECK(samples >= 1, "batch_order", "{} samples; at least 1 is needed", samples);
  TESSERA_CHECK(batch >= 1, "batch_order", "the batch is {}; it must be at least 1", batch);
}

std::int64_t BatchOrder::steps_per_epoch() const { return (samples_ + batch_ - 1) / batch_; }

std::span<const std::int64_t> BatchOrder::samples_of(std::int64_t step) {
  TESSERA_CHECK(step >= 1, "batch_order", "step {}; steps count from 1", step);
  const std::int64_t epoch = (step - 1) / steps_per_epoch();
  if (epoch != epoch_) {
    order_ = random::permutation(
        samples_, random::named_key(seed_, fmt::format("samples of epoch {}", epoch)));
    epoch_ = epoch;
  }
  const std::int64_t begin = (step - 1) % steps_per_epoch() * batch_;
  const std::int64_t end = std::min(samples_, begin + batch_);
  return std::span(order_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(end - begin));
}

}  // namespace tessera::models
