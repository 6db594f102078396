#include "tessera/fsdp/runtime/sharded_parameter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {

void ShardedParameter::take_over(std::shared_ptr<const nn::Mesh> mesh,
                                 std::shared_ptr<nn::ParameterOwner> owner) {
  const Shape local = layout_.local_shape();
  nn::ShardSpec spec = layout_.spec(parameter_.value_spec());
  // In the mesh's order, as in all other specs.
  const std::vector<std::string>& order = mesh->axes();
  std::sort(spec.sharded_axes.begin(), spec.sharded_axes.end(),
            [&order](const std::string& a, const std::string& b) {
              return std::find(order.begin(), order.end(), a) <
                     std::find(order.begin(), order.end(), b);
            });
  parameter_.shard({.spec = std::move(spec),
                    .mesh = std::move(mesh),
                    .local_shape = local,
                    .padded_rows = layout_.dim() == 0 ? layout_.padded_local_rows() : local[0],
                    .home = choice_.offload ? std::optional(kCpu) : std::nullopt,
                    .pinned = choice_.pinned},
                   std::move(owner));
}

std::int64_t ShardedParameter::padded_bytes() const {
  return layout_.gathered_shape().numel() * static_cast<std::int64_t>(dtype_size(compute_dtype()));
}

void ShardedParameter::lay_out(const TensorStorage& gathered, DType slot_dtype) {
  laid_out_dtype_ = parameter_.dtype();
  gathered_version_ = shown_version_ = kNever;
  slot_ = std::make_shared<GradientSlotSink>(
      layout_, TensorOptions{.dtype = slot_dtype, .device = gathered.device()},
      parameter_.name() + ".gradient");
  parameter_.value_leaf().set_gradient_sink(slot_);
  if (aliases()) return;
  const Shape padded = layout_.gathered_shape();
  const auto first = offset_ / static_cast<std::int64_t>(dtype_size(compute_dtype()));
  gathered_ = Tensor::over(gathered, padded, contiguous_strides(padded), first, compute_dtype());
  parameter_.value_leaf().bind(layout_.from_front(gathered_.slice(0, 0, layout_.rows())));
}

Tensor ShardedParameter::gathered_chunks(int first, int count) const {
  const std::int64_t rows = layout_.chunk_rows();
  return gathered_.detached_version().slice(0, first * rows, (first + count) * rows);
}

void ShardedParameter::copy_local_to(const Tensor& rows, std::vector<AxpbySegment>& together,
                                     CopyCounters& copies) const {
  const std::int64_t bytes = rows.numel() * static_cast<std::int64_t>(dtype_size(rows.dtype()));
  if (choice_.offload) {
    copies.transfer += bytes;
  } else if (rows.dtype() != parameter_.dtype()) {
    copies.cast += bytes;
  } else {
    copies.transposed += bytes;
  }
  const Tensor local = layout_.to_front(padded_local());
  if (local.device() == rows.device()) {
    together.push_back({.out = rows, .x = local});
    return;
  }
  const bool moves_only = local.dtype() == rows.dtype() && local.is_contiguous() &&
                          !local.device().is_null() && !rows.device().is_null();
  if (moves_only) {
    transfer_(rows, local);
  } else {
    copy_(rows, to_device(local, rows.device()));
  }
}

void ShardedParameter::show_value() {
  const Variable& local = parameter_.local();
  Variable& leaf = parameter_.value_leaf();
  if (aliases() &&
      !(leaf.tensor().defined() && leaf.tensor().storage() == local.tensor().storage())) {
    leaf.bind(local.tensor().detached_version());
  }
  if (leaf.requires_grad() != parameter_.requires_grad())
    leaf.set_requires_grad(parameter_.requires_grad());
  if (shown_version_ != kNever && shown_version_ != gathered_version_)
    leaf.tensor().bump_version(local.tensor().last_writer());
  shown_version_ = gathered_version_;
  value_version_ = leaf.tensor().version();
  parameter_.set_state(nn::ParameterState::kFull);
}

void ShardedParameter::note_conversion() {
  ordered_version_ = gathered_version_ = shown_version_ = kNever;
  if (!aliases()) return;
  parameter_.value_leaf().bind(
      Tensor::empty_named(parameter_.shape(), {.dtype = parameter_.dtype(), .device = kNull},
                          MemoryCategory::kParameter, parameter_.name(), /*materialized=*/false));
}

void ShardedParameter::lend_cast_copy() {
  if (!is_cast_of_local()) return;
  // What a module wrote to its value is lost with the value, as in groups of several ranks.
  const bool is_written = parameter_.value_leaf().tensor().version() != value_version_;
  // Writes to the copy count as overwriting the value: a graph that saved it reports them.
  parameter_.set_cast_copy(gathered_, /*is_current=*/!is_stale() && !is_written);
}

bool ShardedParameter::has_new_writes() {
  const std::uint64_t version = parameter_.local().tensor().version();
  return std::exchange(ordered_version_, version) != version;
}

Tensor ShardedParameter::new_reduced(std::int64_t rows) const {
  return Tensor::empty_named(layout_.front(rows), slot_->padded().options(),
                             MemoryCategory::kGradient, parameter_.name() + ".grad");
}

}  // namespace tessera::fsdp
