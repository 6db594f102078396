#pragma once

/// Next-token prediction on text: the task of the language models.

#include <memory>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/data/packed_sequences.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/data/data_loader.h"

namespace tessera::models {

struct LanguageTaskOptions {
  std::int64_t batch = 16;  ///< sequences per step, over all ranks
  std::uint64_t seed = 1;   ///< of the sequence order
  /// The ranks that share the batch: one axis. Undefined: the whole world.
  distributed::DeviceMesh data_mesh = {};
  /// The maximum number of sequences in an evaluation pass of a rank, like
  /// TrainerOptions::micro_batch in training. 0: as many as in a training step.
  std::int64_t micro_batch = 0;
  int prefetch = 2;  ///< batches that a background thread reads ahead; 0: none
};

class LanguageTask final : public Task {
 public:
  /// The sequences and the tokenizer must outlive the task. Throws InvalidArgument for a batch
  /// below 1, a negative micro_batch or prefetch, a data_mesh of several axes, sequences that are longer than
  /// the model's max_length, and a tokenizer with more tokens than the model has logits.
  LanguageTask(distributed::World& world, LanguageModel model, const data::PackedSequences& train,
               const data::PackedSequences& validation, const data::Tokenizer& tokenizer,
               const LanguageTaskOptions& options);

  nn::Module& module() override { return model_.module; }
  std::int64_t steps_per_epoch() const override;
  BatchShare load(std::int64_t step) override;
  std::vector<Tensor> inputs() const override { return {tokens_.all(), targets_.all()}; }
  LossSum loss(std::int64_t begin, std::int64_t end) override;
  std::string data_fingerprint() const override;
  /// Returns loss and bits per byte over the validation sequences; no bits per byte if their tokens
  /// stand for no text. Throws InvalidArgument for a token that the tokenizer does not have.
  EvalMetrics evaluate() override;

 private:
  double bytes_of(std::int64_t token) const;

  distributed::World& world_;
  LanguageModel model_;
  const data::PackedSequences& validation_;
  LanguageTaskOptions options_;
  distributed::DeviceMesh data_;
  std::vector<std::int64_t> token_bytes_;
  nn::data::DataLoader<const data::PackedSequences&> loader_;
  DeviceRows tokens_;
  DeviceRows targets_;
};

}  // namespace tessera::models
