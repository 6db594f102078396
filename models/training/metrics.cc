#include "tessera/models/training/metrics.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera::models {
namespace {

// JSON has no infinity and no NaN.
std::string number(double value, DType dtype) {
  if (!std::isfinite(value)) return "null";
  return fmt::format("{:.{}g}", value, dtype == DType::kF64 ? 17 : 9);
}

// Returns `,"name":value` if there is a value.
std::string field(const char* name, std::optional<double> value, DType dtype) {
  return value ? fmt::format(R"(,"{}":{})", name, number(*value, dtype)) : "";
}

std::string token_fields(const StepMetrics& metrics) {
  if (metrics.tokens == 0) return "";
  return fmt::format(R"(,"tokens":{},"tokens_per_s":{:.1f})", metrics.tokens,
                     metrics.tokens_per_second());
}

}  // namespace

double StepMetrics::tokens_per_second() const {
  return step_ms > 0 ? static_cast<double>(tokens) * 1e3 / step_ms : 0;
}

std::string json_line(const StepMetrics& metrics, DType dtype) {
  return fmt::format(
      R"({{"step":{},"loss":{}{},"grad_norm":{},"lr":{},"samples":{}{},"step_ms":{:.3f},)"
      R"("peak_bytes":{},"gathered_peak_bytes":{},"comm_bytes":{},"collectives":{}{}{}}})",
      metrics.step, number(metrics.loss, dtype),
      field("auxiliary_loss", metrics.auxiliary_loss, dtype), number(metrics.grad_norm, dtype),
      number(metrics.learning_rate, dtype), metrics.samples, token_fields(metrics), metrics.step_ms,
      metrics.peak_bytes, metrics.gathered_peak_bytes, metrics.comm_bytes, metrics.collectives,
      field("loss_scale", metrics.loss_scale, dtype), metrics.skipped ? R"(,"skipped":true)" : "");
}

std::string json_line(const EvalMetrics& metrics, DType dtype) {
  return fmt::format(R"({{"eval":{{"step":{},"loss":{}{}{}}}}})", metrics.step,
                     number(metrics.loss, dtype), field("accuracy", metrics.accuracy, dtype),
                     field("bits_per_byte", metrics.bits_per_byte, dtype));
}

}  // namespace tessera::models
