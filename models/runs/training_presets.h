#pragma once

/// How each preset of a language model is trained by default: one table, in training_presets.cc.
/// The model's own files define the sizes of presets.

#include <cstdint>
#include <string>

namespace tessera::models::runs {

struct TrainingPreset {
  const char* model;   ///< a family: "gpt"; "" matches any
  const char* preset;  ///< "" matches any
  std::int64_t steps = 10000;
  std::int64_t batch = 64;    ///< sequences of a step, over all ranks
  std::int64_t seq_len = 0;   ///< tokens of a sequence; 0: the maximum of the preset's model
  double lr = 3e-4;           ///< largest learning rate
  double min_lr = 3e-5;       ///< learning rate at the end
  std::int64_t warmup = 500;  ///< steps
  double weight_decay = 0.1;  ///< of matrices
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip_grad = 1;
};

/// The first row that matches.
const TrainingPreset& training_preset(const std::string& model, const std::string& preset);

}  // namespace tessera::models::runs
