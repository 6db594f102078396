#pragma once

/// How one parameter is cut and where its rows lie: pure arithmetic.
///
/// The dim that is cut comes first wherever rows travel ("front" layout), so the chunks of all
/// ranks stand one behind the other. A parameter may be cut twice: over the shard axis, and each of
/// those chunks over the replicas (FullyShardOptions::shard_optimizer_over_replicas). A replicated
/// one is not cut at all.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

/// This rank's place along an axis that cuts.
struct AxisPlace {
  std::string axis;
  int ranks = 1;
  int rank = 0;
};

class ParameterLayout {
 public:
  /// `dim` of `value_shape` is cut over `axes`, first the shard axis, then the replicas. Needs an
  /// existing dim, and one divisible by all ranks where it is not 0.
  ParameterLayout(const Shape& value_shape, int dim, std::vector<AxisPlace> axes);

  int dim() const { return dim_; }
  int ranks() const { return axes_.empty() ? 1 : axes_[0].ranks; }  ///< of the shard axis
  int rank() const { return axes_.empty() ? 0 : axes_[0].rank; }
  bool is_cut_twice() const { return axes_.size() == 2; }
  int replicas() const { return is_cut_twice() ? axes_[1].ranks : 1; }
  int replica() const { return is_cut_twice() ? axes_[1].rank : 0; }

  std::int64_t rows() const { return rows_; }  ///< of the value along the cut dim
  std::int64_t chunk_rows() const {
    return chunk_rows_;
  }  ///< of each rank of the shard axis, padded
  std::int64_t local_rows() const { return local_rows_; }  ///< of local(): real ones
  /// Of local() with its padding.
  std::int64_t padded_local_rows() const { return padded_local_rows_; }
  /// Room that a chunk needs where the replicas' parts of it stand together.
  std::int64_t roomy_chunk_rows() const;
  /// Every rank's chunk is the whole parameter: nothing is to be gathered.
  bool is_whole() const { return has_one_chunk() && !is_cut_twice(); }
  /// The sum over the shard axis of a gradient in the gathered layout is that gradient, and takes
  /// no more room: nothing is to be scattered.
  bool is_own_sum() const { return has_one_chunk() && roomy_chunk_rows() == chunk_rows_; }

  /// Front layout with so many rows.
  Shape front(std::int64_t rows) const;
  Shape gathered_shape() const { return front(chunk_rows_ * ranks()); }
  Shape local_shape() const;
  /// A view with the cut dim first, and back.
  Tensor to_front(const Tensor& x) const { return x.movedim(dim_, 0); }
  Tensor from_front(const Tensor& x) const { return x.movedim(0, dim_); }

  /// What local() is of a parameter whose value() is `value_spec`.
  nn::ShardSpec spec(const nn::ShardSpec& value_spec) const;

 private:
  /// A rank's chunk is all there is: one rank, or no rows.
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
