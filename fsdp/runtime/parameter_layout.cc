#include "tessera/fsdp/runtime/parameter_layout.h"

#include <algorithm>
#include <utility>

#include "tessera/distributed/mesh/placement.h"

namespace tessera::fsdp {

ParameterLayout::ParameterLayout(const Shape& value_shape, int dim, std::vector<AxisPlace> axes)
    : shape_(value_shape), dim_(dim), axes_(std::move(axes)), rows_(value_shape[dim]) {
  chunk_rows_ = padded_local_rows_ = local_rows_ = rows_;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const auto chunk = distributed::chunk_of(local_rows_, axes_[i].ranks, axes_[i].rank);
    first_row_ += chunk.begin;
    local_rows_ = chunk.rows();
    padded_local_rows_ = chunk.padded_rows;
    if (i == 0) chunk_rows_ = chunk.padded_rows;
  }
}

std::int64_t ParameterLayout::roomy_chunk_rows() const {
  return std::max(chunk_rows_, is_cut_twice() ? padded_local_rows_ * replicas() : 0);
}

Shape ParameterLayout::front(std::int64_t rows) const {
  return shape_.without(dim_).inserted(0, rows);
}

Shape ParameterLayout::local_shape() const { return shape_.with(dim_, local_rows_); }

nn::ShardSpec ParameterLayout::spec(const nn::ShardSpec& value_spec) const {
  nn::ShardSpec spec = value_spec;
  // If it is unknown how the boxes were cut, it stays unknown.
  const bool cuts_known = value_spec.is_whole() || !value_spec.cuts.empty();
  for (const AxisPlace& axis : axes_) {
    if (cuts_known) spec.cuts.push_back({.axis = axis.axis, .dim = dim_});
    if (axis.ranks > 1) spec.sharded_axes.push_back(axis.axis);
  }
  if (is_whole()) return spec;
  if (dim_ > 0) {
    for (nn::ShardBox& box : spec.boxes) {
      box.offset[dim_] += first_row_;
      box.extent[dim_] = local_rows_;
    }
    return spec;
  }
  // The boxes' rows are consecutive; this rank's rows may span several boxes.
  std::vector<nn::ShardBox> mine;
  std::int64_t begin = first_row_;
  std::int64_t left = local_rows_;
  for (nn::ShardBox box : spec.boxes) {
    const std::int64_t skipped = std::min(begin, box.extent[0]);
    const std::int64_t taken = std::min(left, box.extent[0] - skipped);
    begin -= skipped;
    left -= taken;
    box.offset[0] += skipped;
    box.extent[0] = taken;
    if (taken > 0) mine.push_back(box);
  }
  if (mine.empty()) {  // an empty part lies at the end
    nn::ShardBox box = spec.boxes.back();
    box.offset[0] += box.extent[0];
    box.extent[0] = 0;
    mine.push_back(box);
  }
  spec.boxes = std::move(mine);
  return spec;
}

}  // namespace tessera::fsdp
