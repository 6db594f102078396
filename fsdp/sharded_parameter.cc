#include "tessera/fsdp/sharded_parameter.h"

#include <utility>

#include "tessera/distributed/placement.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera::fsdp {

GradientSlotSink::GradientSlotSink(const Shape& shape, std::int64_t padded_rows,
                                   const TensorOptions& options, std::string name)
    : padded_(Tensor::empty_named(shape.with(0, padded_rows), options, MemoryCategory::kGradient,
                                  std::move(name),
                                  /*materialized=*/false)),
      real_rows_(padded_.slice(0, 0, shape[0])) {}

void GradientSlotSink::prepare() {
  if (pending_) return;
  if (listener_) listener_();
  Storage storage = padded_.storage();
  storage.materialize();
  // Padding rows are sent, so they must hold something defined; nobody reads what becomes of them.
  const std::int64_t rows = real_rows_.dim(0);
  if (rows < padded_.dim(0)) fill_(padded_.slice(0, rows, padded_.dim(0)), 0);
}

std::optional<GradientSlot> GradientSlotSink::take_slot(DType storable) {
  if (storable != padded_.dtype()) return std::nullopt;
  prepare();
  const double beta = pending_ ? 1 : 0;
  pending_ = true;
  return GradientSlot{.tensor = real_rows_, .beta = beta};
}

void GradientSlotSink::accumulate(const Tensor& gradient) {
  prepare();
  axpby_(real_rows_, gradient, {.alpha = 1, .beta = pending_ ? 1.0 : 0.0});
  pending_ = true;
  ++accumulations_;
}

Block GradientSlotSink::release() {
  pending_ = false;
  complete_ = false;
  Storage storage = padded_.storage();
  return storage.detach();
}

void GradientSlotSink::discard() {
  if (pending_) release();
}

ShardedParameter::ShardedParameter(nn::Parameter parameter, int ranks, int rank)
    : parameter_(std::move(parameter)), ranks_(ranks), rank_(rank) {
  const Shape& shape = parameter_.shape();
  TESSERA_CHECK(shape.ndim() > 0, "fsdp.fully_shard",
                "parameter \"{}\" has 0 dims; sharding needs at least 1: reshape it to [1]",
                parameter_.name());
  const distributed::Chunk chunk = distributed::chunk_of(shape[0], ranks, rank);
  chunk_rows_ = chunk.padded_rows;
  local_rows_ = chunk.rows();
  first_row_ = chunk.begin;
}

nn::ShardSpec ShardedParameter::spec_for(const std::string& axis) const {
  nn::ShardSpec spec = nn::ShardSpec::whole(parameter_.shape());
  spec.cuts = {{.axis = axis, .dim = 0}};
  if (chunk_rows_ * ranks_ == chunk_rows_)
    return spec;  // all chunks are one: it is everything, on every rank
  Shape offset = Shape::filled(parameter_.shape().ndim(), 0);
  offset[0] = first_row_;
  spec.boxes = {{.offset = offset, .extent = parameter_.shape().with(0, local_rows_)}};
  spec.sharded_axes = {axis};
  return spec;
}

std::int64_t ShardedParameter::padded_bytes() const {
  const Shape padded = parameter_.shape().with(0, chunk_rows_ * ranks_);
  return padded.numel() * static_cast<std::int64_t>(dtype_size(parameter_.dtype()));
}

void ShardedParameter::attach(const Storage& gathered, const nn::ShardSpec& spec,
                              std::shared_ptr<const nn::Mesh> mesh,
                              std::shared_ptr<nn::ParameterOwner> owner) {
  const Shape shape = parameter_.shape();
  parameter_.shard({.spec = spec,
                    .mesh = std::move(mesh),
                    .local_shape = shape.with(0, local_rows_),
                    .padded_rows = chunk_rows_},
                   std::move(owner));
  sink_ = std::make_shared<GradientSlotSink>(
      shape, chunk_rows_ * ranks_,
      TensorOptions{.dtype = parameter_.dtype(), .device = gathered.device()},
      parameter_.name() + ".gradient");
  parameter_.value_leaf().set_gradient_sink(sink_);
  if (is_whole()) return;
  const Shape padded = shape.with(0, chunk_rows_ * ranks_);
  const auto first_element = offset_ / static_cast<std::int64_t>(dtype_size(parameter_.dtype()));
  gathered_ =
      Tensor::over(gathered, padded, contiguous_strides(padded), first_element, parameter_.dtype());
  parameter_.value_leaf().bind(gathered_.slice(0, 0, shape[0]));
}

void ShardedParameter::show_value() {
  const Variable& local = parameter_.local();
  Variable& leaf = parameter_.value_leaf();
  if (is_whole() &&
      !(leaf.tensor().defined() && leaf.tensor().storage() == local.tensor().storage())) {
    leaf.bind(local.tensor().detached_version());
  }
  if (leaf.requires_grad() != parameter_.requires_grad())
    leaf.set_requires_grad(parameter_.requires_grad());
  if (shown_version_ != kNever && shown_version_ != gathered_version_)
    leaf.tensor().bump_version(local.tensor().last_writer());
  shown_version_ = gathered_version_;
  parameter_.set_state(nn::ParameterState::kFull);
}

void ShardedParameter::hide_value() { parameter_.set_state(nn::ParameterState::kSharded); }

bool ShardedParameter::has_new_writes() {
  const std::uint64_t version = parameter_.local().tensor().version();
  return std::exchange(ordered_version_, version) != version;
}

Tensor ShardedParameter::new_reduced() const {
  return Tensor::empty_named(parameter_.shape().with(0, chunk_rows_), padded_local().options(),
                             MemoryCategory::kGradient, parameter_.name() + ".grad");
}

Tensor ShardedParameter::real_rows(const Tensor& reduced) const {
  return reduced.slice(0, 0, local_rows_);
}

}  // namespace tessera::fsdp
