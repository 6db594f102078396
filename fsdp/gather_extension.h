#pragma once

/// A parameter's shards may travel in another form than their own: quantised, compressed, in parts.

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

/// One per parameter. Called on the gather stream, at every gather, by all ranks alike. The group
/// is that of the shard axis alone, also under HSDP.
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
  /// What is gathered.
  struct GatherShard {
    Tensor rows;  ///< this rank's, stored dtype, padded with zeros to as many as every rank has;
                  ///< the dim that is cut comes first
    int ranks = 1;
    int rank = 0;
    std::int64_t real_rows = 0;  ///< how many of them are real
  };
  virtual ~GatherExtension() = default;
  /// What travels: contiguous tensors of any dtypes, in number and sizes equal on every rank.
  virtual std::vector<Tensor> pack(const GatherShard& shard) = 0;
  /// `gathered[i]` has every rank's i-th tensor, [ranks, its shape]. Writes all ranks' rows, those
  /// of rank 0 first, padding included, in the dtype of value().
  virtual void unpack(const GatherShard& shard, std::span<const Tensor> gathered,
                      const Tensor& rows) = 0;
};

}  // namespace tessera::fsdp
