#pragma once

/// A custom wire format for a parameter's all-gather: quantised, compressed or split shards.

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

/// One object per parameter. All ranks call it on the gather stream, at every gather. The process
/// group is always that of the shard axis, also under HSDP.
///
///     class AsBf16 final : public GatherExtension {
///       std::vector<Tensor> pack(const GatherShard& shard) override {
///         return {cast(shard.rows, DType::kBF16)};
///       }
///       void unpack(const GatherShard&, std::span<const Tensor> all, const Tensor& rows) override
///       {
///         copy_(rows, all[0].view(rows.shape()));
///       }
///     };
///
/// int8_extension.h is a larger example.
class GatherExtension {
 public:
  /// This rank's input to a gather.
  struct GatherShard {
    Tensor rows;  ///< this rank's rows in the stored dtype, padded with zeros to the number of rows
                  ///< that every rank has; the sharded dim comes first
    int ranks = 1;
    int rank = 0;
    std::int64_t real_rows = 0;  ///< rows that are not padding
  };
  virtual ~GatherExtension() = default;
  /// The tensors to all-gather: contiguous, of any dtypes, equal in number and sizes on every rank.
  virtual std::vector<Tensor> pack(const GatherShard& shard) = 0;
  /// `gathered[i]` has every rank's i-th tensor, [ranks, its shape]. Writes the rows of all ranks
  /// in rank order, padding included, in the dtype of value().
  virtual void unpack(const GatherShard& shard, std::span<const Tensor> gathered,
                      const Tensor& rows) = 0;
};

}  // namespace tessera::fsdp
