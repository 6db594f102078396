#pragma once

/// Where a parameter's gradient waits for its reduce.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tessera/autograd/gradient_sink.h"
#include "tessera/fsdp/runtime/parameter_layout.h"
#include "tessera/tensor/tensor.h"

namespace tessera::fsdp {

/// A storage of its own with the padded rows of the gathered layout, in the reduce dtype: allocated
/// at the first write, given away at the reduce. Backward kernels write into it where its layout
/// is the value's and they can store its dtype; else one counted kernel adds.
class GradientSlotSink final : public GradientSink {
 public:
  GradientSlotSink(const ParameterLayout& layout, const TensorOptions& options, std::string name);

  std::optional<GradientSlot> take_slot(DType storable) override;
  void accumulate(const Tensor& gradient) override;
  void complete() override { complete_ = true; }

  /// Called ahead of the first write after each release().
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }
  /// True between the first write and release(), take() or discard().
  bool pending() const { return pending_; }
  /// True when every use of the parameter in the current pass has delivered.
  bool is_complete() const { return complete_; }
  /// A new backward pass begins: nothing is complete.
  void begin_pass() { complete_ = false; }
  /// A gradient of zeros, for a parameter that this rank did not use.
  void fill_with_zeros();
  /// All rows, padding included; what a reduction reads. Only while pending.
  const Tensor& padded() const { return padded_; }
  DType dtype() const { return padded_.dtype(); }
  /// Gives the bytes away after a reduce was issued: they must live until it is done.
  Block release();
  /// Gives tensor and bytes away.
  Tensor take();
  void discard();
  /// Bytes added by a kernel of their own because the gradient could not be written in place.
  std::int64_t accumulated_bytes() const { return accumulated_bytes_; }

 private:
  void renew();
  void prepare();

  ParameterLayout layout_;
  TensorOptions options_;
  std::string name_;
  Tensor padded_;  ///< front layout
  Tensor value_;   ///< the real rows, in the value's layout
  std::function<void()> listener_;
  bool pending_ = false;
  bool complete_ = false;
  std::int64_t accumulated_bytes_ = 0;
};

}  // namespace tessera::fsdp
