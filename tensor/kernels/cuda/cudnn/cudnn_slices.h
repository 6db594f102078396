#pragma once

/// How attention's derivative is split so that cuDNN's scratch stays small. A pure function, tested
/// on the CPU.
///
/// Where the order of its sums must be fixed (tensor/determinism.h), cuDNN writes the gradient of
/// the scores to memory before dq is summed from it: two bytes for each query and key. Batch
/// entries, and groups of heads within an entry, are independent, so they are computed slice by
/// slice.

#include <cstdint>

namespace tessera::cuda {

struct AttentionSlices {
  std::int64_t batch = 1;     ///< entries of a slice
  std::int64_t kv_heads = 1;  ///< of a slice; all unless batch is 1
};

/// The default.
inline constexpr std::int64_t kSliceBytes = std::int64_t{4} << 30;

/// The largest slices of equal size below `most` bytes; at least one group of heads.
inline AttentionSlices attention_slices(std::int64_t batch, std::int64_t kv_heads,
                                        std::int64_t group, std::int64_t pairs,
                                        std::int64_t most = kSliceBytes) {
  const std::int64_t head_bytes = 2 * group * pairs;
  for (std::int64_t entries = batch; entries > 0; --entries) {
    if (batch % entries == 0 && entries * kv_heads <= most / head_bytes)
      return {.batch = entries, .kv_heads = kv_heads};
  }
  std::int64_t heads = kv_heads;
  while (heads > 1 && (kv_heads % heads != 0 || heads > most / head_bytes)) --heads;
  return {.batch = 1, .kv_heads = heads};
}

}  // namespace tessera::cuda
