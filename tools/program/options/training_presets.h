#pragma once

/// How each preset of a language model is trained, where the user says nothing: one table, in
/// training_presets.cc. What a preset *is* stands with its model.

#include <cstdint>
#include <string>

namespace tessera::tools {

struct TrainingPreset {
  const char* model;   ///< a family: "gpt"; "" for any
  const char* preset;  ///< "" for any
  std::int64_t steps = 10000;
  std::int64_t batch = 64;    ///< sequences of a step, over all ranks
  std::int64_t seq_len = 0;   ///< tokens of a sequence; 0: as long as the model of the preset
  double lr = 3e-4;           ///< the largest
  double min_lr = 3e-5;       ///< at the end
  std::int64_t warmup = 500;  ///< steps
  double weight_decay = 0.1;  ///< of matrices
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip_grad = 1;
};

/// The first row that fits.
const TrainingPreset& training_preset(const std::string& model, const std::string& preset);

}  // namespace tessera::tools
