#pragma once

/// The memory in which a parameter's gradient waits for its reduction.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/gradient_sink.h"
#include "tessera/fsdp/runtime/parameter_layout.h"
#include "tessera/tensor/ops/lists.h"
#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

/// Owns one storage with the padded rows of the gathered layout, in the reduce dtype. It is
/// allocated at the first write and handed over at the reduction. Backward kernels write into it
/// directly if its layout is that of value() and they can store its dtype; otherwise an extra
/// kernel adds the gradient, and its bytes are counted. A small gradient of this kind waits: the
/// reduction adds those of all parameters of its group in one launch.
class GradientSlotSink final : public GradientSink {
 public:
  GradientSlotSink(const ParameterLayout& layout, const TensorOptions& options, std::string name);

  std::optional<GradientSlot> take_slot(DType storable) override;
  void accumulate(const Tensor& gradient) override;
  void complete() override { complete_ = true; }

  /// The listener is called before the first write after each release().
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }
  /// True between the first write and release(), take() or discard().
  bool pending() const { return pending_; }
  /// True if every use of the parameter in this backward pass has contributed its gradient.
  bool is_complete() const { return complete_; }
  /// A new backward pass begins: no gradient is complete.
  void begin_pass() { complete_ = false; }
  /// Sets the gradient to zeros, for a parameter that this rank did not use.
  void fill_with_zeros();
  /// Appends the gradient that waits to be added, if there is one. The caller adds it.
  void take_waiting(std::vector<AxpbySegment>& out);
  /// All rows, padding included: the input of a reduction. Valid only while pending(), and complete
  /// when no gradient waits.
  const Tensor& padded() const { return padded_; }
  DType dtype() const { return padded_.dtype(); }
  /// Hands over the bytes after a reduction was issued. The caller keeps them until it is done.
  MemoryBlock release();
  /// Hands over the tensor with its bytes.
  Tensor take();
  void discard();
  /// Bytes added by an extra kernel because the gradient could not be written in place.
  std::int64_t accumulated_bytes() const { return accumulated_bytes_; }

 private:
  void renew();
  void prepare();
  void add_waiting();

  ParameterLayout layout_;
  TensorOptions options_;
  std::string name_;
  Tensor padded_;  ///< front layout
  Tensor value_;   ///< the real rows, in the value's layout
  std::optional<AxpbySegment> waiting_;
  std::function<void()> listener_;
  bool pending_ = false;
  bool complete_ = false;
  std::int64_t accumulated_bytes_ = 0;
};

}  // namespace tessera::fsdp
