#pragma once

/// The sharding and memory layout of one parameter: pure arithmetic.
///
/// In memory that is sent, the sharded dim comes first (the "front" layout), so the chunks of all
/// ranks are contiguous and in rank order. A parameter may be sharded twice: over the shard axis,
/// and each of those chunks over the replicas (FullyShardOptions::shard_optimizer_over_replicas). A
/// replicated parameter is not sharded.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

/// This rank's coordinate on an axis that shards.
struct AxisPlace {
  std::string axis;
  int ranks = 1;
  int rank = 0;
};

class ParameterLayout {
 public:
  /// `dim` of `value_shape` is sharded over `axes`: the shard axis first, then the replica axis.
  /// `dim` must exist. If it is not 0, all ranks together must divide its size.
  ParameterLayout(const Shape& value_shape, int dim, std::vector<AxisPlace> axes);

  int dim() const { return dim_; }
  int ranks() const { return axes_.empty() ? 1 : axes_[0].ranks; }  ///< on the shard axis
  int rank() const { return axes_.empty() ? 0 : axes_[0].rank; }
  bool is_cut_twice() const { return axes_.size() == 2; }
  int replicas() const { return is_cut_twice() ? axes_[1].ranks : 1; }
  int replica() const { return is_cut_twice() ? axes_[1].rank : 0; }

  std::int64_t rows() const { return rows_; }  ///< rows of value() along the sharded dim
  /// Rows of one chunk of the shard axis, padded.
  std::int64_t chunk_rows() const { return chunk_rows_; }
  std::int64_t local_rows() const { return local_rows_; }  ///< real rows of local()
  /// Rows of local() with padding.
  std::int64_t padded_local_rows() const { return padded_local_rows_; }
  /// Rows that a chunk needs when it holds the padded parts of all replicas.
  std::int64_t roomy_chunk_rows() const;
  /// Every rank's chunk is the full parameter: no gather is needed.
  bool is_whole() const { return has_one_chunk() && !is_cut_twice(); }
  /// A gradient in the gathered layout already equals its sum over the shard axis, and a chunk
  /// needs no more room: no reduce-scatter is needed.
  bool is_own_sum() const { return has_one_chunk() && roomy_chunk_rows() == chunk_rows_; }

  /// The front layout with `rows` rows.
  Shape front(std::int64_t rows) const;
  Shape gathered_shape() const { return front(chunk_rows_ * ranks()); }
  Shape local_shape() const;
  /// A view with the sharded dim first, and the inverse.
  Tensor to_front(const Tensor& x) const { return x.movedim(dim_, 0); }
  Tensor from_front(const Tensor& x) const { return x.movedim(0, dim_); }

  /// The spec of local(), for a parameter whose value() has `value_spec`.
  nn::ShardSpec spec(const nn::ShardSpec& value_spec) const;

 private:
  /// One rank's chunk is everything: there is one rank, or no row.
  bool has_one_chunk() const { return chunk_rows_ * ranks() == chunk_rows_; }

  Shape shape_;
  int dim_;
  std::vector<AxisPlace> axes_;
  std::int64_t rows_ = 0;
  std::int64_t chunk_rows_ = 0;
  std::int64_t local_rows_ = 0;
  std::int64_t padded_local_rows_ = 0;
  std::int64_t first_row_ = 0;
};

}  // namespace tessera::fsdp
