#pragma once

/// What a run reports, and how it is written: one JSON object a line.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/tensor/dtype.h"

namespace tessera::models {

/// One training step, equal on every rank. All but `step_ms` is equal in equal runs.
///
/// Collectives and bytes are those of the step itself: gathers, reductions, the sample count and
/// the gradient norm. The gathers that bring the ranks' figures together are in no step.
struct StepMetrics {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;        ///< mean over the samples (or tokens) of all ranks
  std::optional<double> auxiliary_loss = std::nullopt;  ///< where the model adds one to the mean
  double grad_norm = 0;  ///< of all parameters on all ranks, before it is cut down
  double learning_rate = 0;
  std::int64_t samples = 0;  ///< of this step, over all ranks
  std::int64_t tokens = 0;   ///< likewise; 0 where there are none, and then not written
  /// From the choice of the samples to the end of the optimizer's work, on rank 0.
  double step_ms = 0;
  std::int64_t peak_bytes = 0;                      ///< largest rank's, since the step began
  std::int64_t gathered_peak_bytes = 0;             ///< the same of gathered parameters alone
  std::int64_t comm_bytes = 0;                      ///< sent, summed over ranks
  std::int64_t collectives = 0;                     ///< summed over ranks
  std::optional<double> loss_scale = std::nullopt;  ///< of f16
  bool skipped = false;  ///< the loss scale was too large: nothing was updated
  int stop_signal = 0;   ///< a rank's World::stop_signal(); the run is to end. Not written

  /// tokens / step_ms, in tokens a second; 0 where there are none.
  double tokens_per_second() const;
};

struct EvalMetrics {
  std::int64_t step = 0;  ///< training steps done before
  double loss = 0;        ///< mean over all samples (or tokens)
  /// Part of the samples whose class has the largest logit, in [0, 1]; of classifiers.
  std::optional<double> accuracy = std::nullopt;
  /// Of language models: what the text costs, whatever the tokenizer.
  std::optional<double> bits_per_byte = std::nullopt;
};

/// `{"step":1,"loss":...}` and `{"eval":{"step":...}}`, without a line end. Figures that were
/// computed have every digit of `dtype`: 9 for f32, 17 for f64; what is not finite is null.
std::string json_line(const StepMetrics& metrics, DType dtype);
std::string json_line(const EvalMetrics& metrics, DType dtype);

}  // namespace tessera::models
