#include "tessera/tools/program/interruption.h"

#include <fmt/format.h>

#include <cstdint>

namespace tessera::tools {
namespace {

constexpr const char* kAgain = "the same command starts again at step 1";

std::string kept_text(const TrainOptions& options, std::int64_t steps) {
  if (options.out.empty()) return "nothing is kept of a run without --out";
  if (steps == 0) return fmt::format("no file of {} has changed", options.out);
  if (options.node_rank != 0) return "node 0 has what is kept";
  if (options.model == "mlp")
    return fmt::format("{} has metrics and report of these steps", options.out);
  return fmt::format(
      "{0} has weights, metrics and report of these steps: try them with tessera eval --run {0} or "
      "tessera generate --run {0}",
      options.out);
}

}  // namespace

std::string interruption_text(const TrainOptions& options,
                              const distributed::LaunchResult& result) {
  const std::string when =
      result.steps == 0 ? "before the first step" : fmt::format("after step {}", result.steps);
  return fmt::format("interrupted {}; {}; {}", when, kept_text(options, result.steps), kAgain);
}

}  // namespace tessera::tools
