#pragma once

/// All-gathers parameters with 8 bits per element: about a quarter of the bytes of f32. Shards,
/// gradients and the optimizer keep full precision. The gathered values are rounded at every
/// gather, identically on every rank, including the rank's own rows. Also an example of a
/// GatherExtension.
///
///     fully_shard(block, {.mesh = mesh, .gather_extension = int8_gather()});
///
/// Each row of the sharded dim is quantised symmetrically, in blocks of consecutive elements:
///
///     scale = max |x| / 127 of the block, in f32      code = round(x / scale), in [-127, 127]
///
/// and dequantised to code * scale. An element is therefore off by at most max |x| / 254 of its
/// block (besides the rounding of f32 and of the compute dtype). A block of zeros stays zero. A
/// block that contains an infinity or a NaN has no finite element afterwards. Blocks start at the
/// beginning of each row, so the values do not depend on the number of ranks.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/fsdp/gather_extension.h"
#include "tessera/fsdp/options.h"

namespace tessera::fsdp {

struct Int8Options {
  std::int64_t block = 128;  ///< elements that share one 4-byte scale; >= 1
  /// Parameters whose rows (of dim 0, whatever dim is sharded) have fewer elements are sent
  /// unquantised (biases, norms): the scales would cost more than the codes save.
  std::int64_t smallest_row = 16;
};

/// For FullyShardOptions::gather_extension. Throws InvalidArgument for a block below 1.
ExtensionOf int8_gather(const Int8Options& options = {});

class Int8Extension final : public GatherExtension {
 public:
  /// Throws InvalidArgument for a block below 1.
  explicit Int8Extension(std::int64_t block);
  /// Codes: u8 [rows, row elements], stored + 128. Scales: f32 [rows, blocks per row].
  std::vector<Tensor> pack(const GatherShard& shard) override;
  void unpack(const GatherShard& shard, std::span<const Tensor> gathered,
              const Tensor& rows) override;

 private:
  std::int64_t block_;
};

}  // namespace tessera::fsdp
