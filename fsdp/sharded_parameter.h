#pragma once

/// One parameter of a group: how its rows are cut, where it lies in the group's gathered memory,
/// and where its gradient is collected.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera/autograd/gradient_sink.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

/// Where a parameter's gradient waits for its reduce: a storage of its own with the padded rows of
/// the gathered layout, allocated at the first write and given away at the reduce.
class GradientSlotSink final : public GradientSink {
 public:
  /// `shape` is the value's; the slot has `padded_rows` rows of it.
  GradientSlotSink(const Shape& shape, std::int64_t padded_rows, const TensorOptions& options,
                   std::string name);

  std::optional<GradientSlot> take_slot(DType storable) override;
  void accumulate(const Tensor& gradient) override;
  void complete() override { complete_ = true; }

  /// Called ahead of the first write after each release().
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }
  /// True between the first write and release() or discard().
  bool pending() const { return pending_; }
  /// True when every use of the parameter in the current pass has delivered.
  bool is_complete() const { return complete_; }
  /// A new backward pass begins: nothing is complete.
  void begin_pass() { complete_ = false; }
  /// All rows, padding included; what a reduce-scatter reads. Only while pending.
  const Tensor& padded() const { return padded_; }
  /// Gives the bytes away after a reduce was issued: they must live until it is done.
  Block release();
  /// Drops what was collected.
  void discard();
  /// Additions made by a kernel of their own because the gradient could not be written in place.
  std::int64_t accumulations() const { return accumulations_; }

 private:
  void prepare();

  Tensor padded_;
  Tensor real_rows_;
  std::function<void()> listener_;
  bool pending_ = false;
  bool complete_ = false;
  std::int64_t accumulations_ = 0;
};

class ShardedParameter {
 public:
  /// Lays out `parameter` for rank `rank` of `ranks`, without touching it yet. Throws
  /// InvalidArgument for one without dims.
  ShardedParameter(nn::Parameter parameter, int ranks, int rank);

  /// Takes the parameter over: cuts it, installs the sink, and views its value in `gathered` (bytes
  /// from offset()).
  void attach(const Storage& gathered, const nn::ShardSpec& spec,
              std::shared_ptr<const nn::Mesh> mesh, std::shared_ptr<nn::ParameterOwner> owner);
  /// This rank's and every rank's cut.
  nn::ShardSpec spec_for(const std::string& axis) const;

  const nn::Parameter& parameter() const { return parameter_; }
  /// Bytes in the gathered memory: padded rows of all ranks.
  std::int64_t padded_bytes() const;
  void set_offset(std::int64_t bytes) { offset_ = bytes; }
  std::int64_t offset() const { return offset_; }
  /// The value aliases local(): there is nothing to gather.
  bool is_whole() const { return parameter_.spec().is_whole(); }

  /// The part of the gathered memory that this parameter occupies, [ranks * chunk rows, ...].
  const Tensor& gathered() const { return gathered_; }
  /// What this rank sends to a gather, [chunk rows, ...].
  Tensor padded_local() const { return parameter_.padded_local(); }

  /// True when local() was written since the last call: a gather has to wait for compute before it
  /// reads it.
  bool has_new_writes();
  /// A gather of local() as it is now was issued.
  void note_gather() { gathered_version_ = parameter_.local().tensor().version(); }
  /// The gathered value can be read from now on. When local()
  /// was written since it was last shown, whatever saved the old value for a backward finds it
  /// overwritten.
  void show_value();
  void hide_value();
  /// local() was written since the last gather was issued: it shows, or will show, an old value.
  bool is_stale() const { return differs_from(gathered_version_); }
  /// local() was written since the value was last shown.
  bool is_written_since_shown() const { return differs_from(shown_version_); }

  GradientSlotSink& sink() const { return *sink_; }
  /// Makes the tensor that a reduce-scatter writes, [chunk rows, ...], and the view of its real
  /// rows, which becomes grad().
  Tensor new_reduced() const;
  Tensor real_rows(const Tensor& reduced) const;

 private:
  nn::Parameter parameter_;
  int ranks_;
  int rank_;
  std::int64_t chunk_rows_ = 0;  ///< rows of every rank once padded
  std::int64_t local_rows_ = 0;  ///< real rows of this rank
  std::int64_t first_row_ = 0;
  std::int64_t offset_ = 0;
  Tensor gathered_;
  bool differs_from(std::uint64_t version) const {
    return version != kNever && parameter_.local().tensor().version() != version;
  }
  // Versions of local(): none of them, as long as the thing has not happened.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t ordered_version_ = kNever;   // its writes are ordered before later gathers
  std::uint64_t gathered_version_ = kNever;  // the last gather sent it
  std::uint64_t shown_version_ = kNever;     // the value showed it last
  std::shared_ptr<GradientSlotSink> sink_;
};

}  // namespace tessera::fsdp
