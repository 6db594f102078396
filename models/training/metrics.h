#pragma once

/// The metrics of a run, and their output: one JSON object per line.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/tensor/dtype.h"

namespace tessera::models {

/// The metrics of one training step, equal on every rank. All but `step_ms` are equal in equal
/// runs.
///
/// Collectives and bytes are those of the step itself: gathers, reductions, the sample count and
/// the gradient norm. The collectives that gather the ranks' metrics are counted in no step.
struct StepMetrics {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;        ///< mean over the samples (or tokens) of all ranks
  std::optional<double> auxiliary_loss = std::nullopt;  ///< if the model adds one to the mean loss
  double grad_norm = 0;  ///< of all parameters on all ranks, before clipping
  double learning_rate = 0;
  std::int64_t samples = 0;  ///< samples in this step, over all ranks
  std::int64_t tokens = 0;   ///< tokens in this step, over all ranks; 0 if the task has none, and
                             ///< then not written
  /// Time from the choice of the samples to the end of the optimizer's work, on rank 0.
  double step_ms = 0;
  std::int64_t peak_bytes = 0;                      ///< the largest rank's peak since the step
                                                    ///< began
  std::int64_t gathered_peak_bytes = 0;             ///< the same for gathered parameters only
  std::int64_t comm_bytes = 0;                      ///< sent, summed over ranks
  std::int64_t collectives = 0;                     ///< summed over ranks
  std::optional<double> loss_scale = std::nullopt;  ///< only with f16
  bool skipped = false;  ///< the loss scale was too large: nothing was updated
  int stop_signal = 0;   ///< a rank's World::stop_signal(): the run should end. Not written

  /// tokens / step_ms, in tokens per second; 0 if there are none.
  double tokens_per_second() const;
};

struct EvalMetrics {
  std::int64_t step = 0;  ///< number of training steps done before
  double loss = 0;        ///< mean over all samples (or tokens)
  /// Fraction of the samples whose class has the largest logit, in [0, 1]; only of classifiers.
  std::optional<double> accuracy = std::nullopt;
  /// Only of language models: the loss per byte of text, comparable between tokenizers.
  std::optional<double> bits_per_byte = std::nullopt;
};

/// `{"step":1,"loss":...}` and `{"eval":{"step":...}}`, without a line end. Computed numbers have
/// all significant digits of `dtype`: 9 for f32, 17 for f64; NaN and infinity are written as null.
std::string json_line(const StepMetrics& metrics, DType dtype);
std::string json_line(const EvalMetrics& metrics, DType dtype);

}  // namespace tessera::models
