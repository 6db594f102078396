#pragma once

/// The names of the files in the folder of a run, as `tessera train --out` writes them.

namespace tessera::models {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kTokenizerFile = "tokenizer.model";
inline constexpr const char* kSampleFile = "sample.txt";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kFailureFile = "failure.txt";
inline constexpr const char* kTraceFile = "trace.json";
inline constexpr const char* kProfileFile = "profile.txt";

/// The folder of checkpoints in it: fsdp/checkpoint.
inline constexpr const char* kCheckpointsFolder = "checkpoints";

}  // namespace tessera::models
