#include "tessera/models/metrics.h"

#include <fmt/format.h>

namespace tessera::models {
namespace {

std::string number(double value, DType dtype) {
  return fmt::format("{:.{}g}", value, dtype == DType::kF64 ? 17 : 9);
}

}  // namespace

std::string json_line(const StepMetrics& metrics, DType dtype) {
  return fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"samples":{},"step_ms":{:.3f},"peak_bytes":{},)"
      R"("gathered_peak_bytes":{},"comm_bytes":{},"collectives":{}}})",
      metrics.step, number(metrics.loss, dtype), number(metrics.grad_norm, dtype),
      number(metrics.learning_rate, dtype), metrics.samples, metrics.step_ms, metrics.peak_bytes,
      metrics.gathered_peak_bytes, metrics.comm_bytes, metrics.collectives);
}

std::string json_line(const EvalMetrics& metrics, DType dtype) {
  return fmt::format(R"({{"eval":{{"step":{},"loss":{},"accuracy":{}}}}})", metrics.step,
                     number(metrics.loss, dtype), number(metrics.accuracy, dtype));
}

}  // namespace tessera::models
