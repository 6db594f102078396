#include "tessera/fsdp/runtime/gradient_slot.h"

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

/// A gradient waits if the memory that it keeps alive has at most so many bytes: then a launch costs
/// more than the memory is worth.
constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 10;

}  // namespace

GradientSlotSink::GradientSlotSink(const ParameterLayout& layout, const TensorOptions& options,
                                   std::string name)
    : layout_(layout), options_(options), name_(std::move(name)) {
  renew();
}

void GradientSlotSink::renew() {
  padded_ = Tensor::empty_named(layout_.gathered_shape(), options_, MemoryCategory::kGradient,
                                name_, /*materialized=*/false);
  value_ = layout_.from_front(padded_.slice(0, 0, layout_.rows()));
}

void GradientSlotSink::prepare() {
  if (pending_) return;
  if (listener_) listener_();
  TensorStorage storage = padded_.storage();
  storage.materialize();
  // Padding rows are sent, so they must be initialised. Their reduced values are never read.
  if (layout_.rows() < padded_.dim(0)) fill_(padded_.slice(0, layout_.rows(), padded_.dim(0)), 0);
}

std::optional<GradientSlot> GradientSlotSink::take_slot(DType storable) {
  if (storable != padded_.dtype() || !value_.is_contiguous()) return std::nullopt;
  prepare();
  add_waiting();
  const double beta = pending_ ? 1 : 0;
  pending_ = true;
  return GradientSlot{.tensor = value_, .beta = beta};
}

void GradientSlotSink::accumulate(const Tensor& gradient) {
  prepare();
  add_waiting();
  waiting_ = {.out = value_, .x = gradient, .beta = pending_ ? 1.0 : 0.0};
  if (gradient.storage().bytes() > kMostWaitingBytes) add_waiting();
  pending_ = true;
  accumulated_bytes_ += value_.numel() * static_cast<std::int64_t>(dtype_size(value_.dtype()));
}

void GradientSlotSink::add_waiting() {
  if (!waiting_) return;
  const AxpbySegment sum = *std::exchange(waiting_, std::nullopt);
  axpby_(sum.out, sum.x, {.alpha = sum.alpha, .beta = sum.beta});
}

void GradientSlotSink::take_waiting(std::vector<AxpbySegment>& out) {
  if (waiting_) out.push_back(*std::exchange(waiting_, std::nullopt));
}

void GradientSlotSink::fill_with_zeros() {
  prepare();
  fill_(padded_.slice(0, 0, layout_.rows()), 0);
  pending_ = complete_ = true;
}

MemoryBlock GradientSlotSink::release() {
  pending_ = false;
  complete_ = false;
  waiting_.reset();
  TensorStorage storage = padded_.storage();
  return storage.detach();
}

Tensor GradientSlotSink::take() {
  pending_ = false;
  complete_ = false;
  Tensor out = padded_;
  renew();
  return out;
}

void GradientSlotSink::discard() {
  if (pending_) release();
}

}  // namespace tessera::fsdp
