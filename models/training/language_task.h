#pragma once

/// Next-token prediction on text: the task of the language models.

#include <memory>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/token_loader.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/models/training/device_rows.h"
#include "tessera/models/training/task.h"

namespace tessera::models {

struct LanguageTaskOptions {
  std::int64_t batch = 16;  ///< sequences of a step, over all ranks
  std::uint64_t seed = 1;   ///< of their order
  /// Ranks that share the batch: one axis. Undefined: all of the world.
  distributed::DeviceMesh data_mesh = {};
  /// Sequences of a rank that are evaluated at a time, at the most, as TrainerOptions has them
  /// trained; 0: as many as a training step has.
  std::int64_t micro_batch = 0;
  int prefetch = 2;  ///< batches that are read ahead, by a thread of their own; 0: none
};

class LanguageTask final : public Task {
 public:
  /// The sequences and the tokenizer outlive the task. Throws InvalidArgument for a batch below 1,
  /// a negative micro_batch, a data_mesh of several axes, sequences that are longer than the model
  /// computes, and a tokenizer with more tokens than the model has logits.
  LanguageTask(distributed::World& world, LanguageModel model, const data::PackedSequences& train,
               const data::PackedSequences& validation, const data::Tokenizer& tokenizer,
               const LanguageTaskOptions& options);

  nn::Module& module() override { return model_.module; }
  std::int64_t steps_per_epoch() const override;
  BatchShare load(std::int64_t step) override;
  std::vector<Tensor> inputs() const override { return {tokens_.all(), targets_.all()}; }
  LossSum loss(std::int64_t begin, std::int64_t end) override;
  /// Loss and bits per byte over the validation sequences; no bits where their tokens stand for no
  /// text. Throws InvalidArgument for a token that the tokenizer has not.
  EvalMetrics evaluate() override;

 private:
  double bytes_of(std::int64_t token) const;

  distributed::World& world_;
  LanguageModel model_;
  const data::PackedSequences& validation_;
  LanguageTaskOptions options_;
  distributed::DeviceMesh data_;
  std::vector<std::int64_t> token_bytes_;
  data::TokenLoader loader_;
  DeviceRows tokens_;
  DeviceRows targets_;
};

}  // namespace tessera::models
