#pragma once

/// Gathers parameters in 8 bits an element: about a quarter of what f32 sends. Shards, gradients
/// and the optimizer keep full precision; what modules compute with is rounded at every gather, by
/// the same rule on every rank, this one's rows included. Also the example of a GatherExtension.
///
///     fully_shard(block, {.mesh = mesh, .gather_extension = int8_gather()});
///
/// Each row of the dim that is cut is quantised in blocks of neighbours, symmetrically:
///
///     scale = max |x| / 127 of the block, in f32      code = round(x / scale), in [-127, 127]
///
/// and arrives as code * scale. So an element is off by at most max |x| / 254 of its block (beside
/// the rounding of f32 and of the compute dtype); a block of zeros stays zero, and one that holds
/// an infinity or a NaN has no finite element afterwards. Rows are cut in blocks from their own
/// start: values do not depend on the number of ranks.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/fsdp/gather_extension.h"
#include "tessera/fsdp/options.h"

namespace tessera::fsdp {

struct Int8Options {
  std::int64_t block = 128;  ///< elements that share a scale of 4 bytes; >= 1
  /// Parameters whose rows (of dim 0, whatever is cut) have fewer elements travel as they are
  /// (biases, norms): scales would cost more than codes save.
  std::int64_t smallest_row = 16;
};

/// For FullyShardOptions::gather_extension. Throws InvalidArgument for a block below 1.
ExtensionOf int8_gather(const Int8Options& options = {});

class Int8Extension final : public GatherExtension {
 public:
  /// Throws InvalidArgument for a block below 1.
  explicit Int8Extension(std::int64_t block);
  /// Codes, u8 [rows, row elements], 128 more than above; scales, f32 [rows, blocks of a row].
  std::vector<Tensor> pack(const GatherShard& shard) override;
  void unpack(const GatherShard& shard, std::span<const Tensor> gathered,
              const Tensor& rows) override;

 private:
  std::int64_t block_;
};

}  // namespace tessera::fsdp
