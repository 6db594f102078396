#pragma once

/// What a run reports, and how it is written: one JSON object a line.

#include <cstdint>
#include <string>

#include "tessera/tensor/dtype.h"

namespace tessera::models {

/// One training step, equal on every rank. All but `step_ms` is equal in equal runs.
///
/// Collectives and bytes are those of the step itself: gathers, reductions, the sample count and
/// the gradient norm. The one gather that brings these figures together comes after the counters
/// are read and is in no step.
struct StepMetrics {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;        ///< mean over the samples of all ranks
  double grad_norm = 0;   ///< of all parameters on all ranks
  double learning_rate = 0;
  std::int64_t samples = 0;  ///< of this step, over all ranks
  double step_ms =
      0;  ///< from the choice of the samples to the end of the optimizer's work, on rank 0
  std::int64_t peak_bytes = 0;           ///< largest rank's, since the step began
  std::int64_t gathered_peak_bytes = 0;  ///< the same of gathered parameters alone
  std::int64_t comm_bytes = 0;           ///< sent, summed over ranks
  std::int64_t collectives = 0;          ///< summed over ranks
};

struct EvalMetrics {
  std::int64_t step = 0;  ///< training steps done before
  double loss = 0;        ///< mean over all samples
  double accuracy = 0;    ///< part of the samples whose class has the largest logit, in [0, 1]
};

/// `{"step":1,"loss":...}` and `{"eval":{"step":...}}`, without a line end. Figures that were
/// computed have every digit of `dtype`: 9 for f32, 17 for f64.
std::string json_line(const StepMetrics& metrics, DType dtype);
std::string json_line(const EvalMetrics& metrics, DType dtype);

}  // namespace tessera::models
