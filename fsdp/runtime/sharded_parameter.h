#pragma once

/// One parameter of a group: where it lies in the group's gathered memory, what of it travels, and
/// where its gradient is collected.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera/fsdp/gather_extension.h"
#include "tessera/fsdp/runtime/copy_counters.h"
#include "tessera/fsdp/runtime/gradient_slot.h"
#include "tessera/fsdp/runtime/parameter_layout.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

/// What the caller chose for a parameter.
struct ParameterChoice {
  std::optional<DType> compute_dtype = {};  ///< unset: the stored one
  bool offload = false;
  bool pinned = false;  ///< with offload
  std::shared_ptr<GatherExtension> extension = {};
};

class ShardedParameter {
 public:
  ShardedParameter(nn::Parameter parameter, ParameterLayout layout, ParameterChoice choice)
      : parameter_(std::move(parameter)), layout_(std::move(layout)), choice_(std::move(choice)) {}

  /// Takes the parameter over: from now on local() is this rank's part.
  void take_over(std::shared_ptr<const nn::Mesh> mesh, std::shared_ptr<nn::ParameterOwner> owner);
  /// Views the value in `gathered` (bytes from offset()) and makes a slot of `slot_dtype`. Again
  /// after local() was converted.
  void lay_out(const Storage& gathered, DType slot_dtype);

  const nn::Parameter& parameter() const { return parameter_; }
  const ParameterLayout& layout() const { return layout_; }
  const ParameterChoice& choice() const { return choice_; }
  DType compute_dtype() const { return choice_.compute_dtype.value_or(parameter_.dtype()); }
  /// Bytes in the gathered memory: padded rows of all ranks.
  std::int64_t padded_bytes() const;
  void set_offset(std::int64_t bytes) { offset_ = bytes; }
  std::int64_t offset() const { return offset_; }
  /// The value is local() itself: there is nothing to gather and nothing to copy.
  bool aliases() const {
    return layout_.is_whole() && compute_dtype() == parameter_.dtype() && !choice_.offload &&
           !choice_.extension;
  }
  /// local() travels as it lies; else it is copied into its place of the gathered memory first.
  bool travels_as_it_is() const {
    return layout_.dim() == 0 && compute_dtype() == parameter_.dtype() && !choice_.offload &&
           !choice_.extension && !layout_.is_cut_twice();
  }
  bool is_laid_out_for(DType dtype) const { return laid_out_dtype_ == dtype; }

  /// The part of the gathered memory that this parameter occupies: all ranks' chunks.
  const Tensor& gathered() const { return gathered_; }
  /// Chunks [first, first + count) of it, in a version family of their own: to be written by the
  /// owner, which is no overwrite of the value.
  Tensor gathered_chunks(int first, int count) const;
  /// local() with its padding, as it is stored.
  Tensor padded_local() const { return parameter_.padded_local(); }
  /// Copies local() with its padding to `rows`, which are in front layout and may have another
  /// dtype or device. Counts the bytes by their cause.
  void copy_local_to(const Tensor& rows, CopyCounters& copies) const;

  /// local() is about to be converted: what was known of its versions is void, and the value lets
  /// go of its memory.
  void note_conversion();
  /// True when local() was written since the last call: a gather has to wait for compute before it
  /// reads it.
  bool has_new_writes();
  /// local() as it is now was sent.
  void note_gather() { gathered_version_ = parameter_.local().tensor().version(); }
  /// The gathered value can be read from now on. When local() was written since it was last shown,
  /// whatever saved the old value for a backward finds it overwritten.
  void show_value();
  void hide_value(nn::ParameterState state) { parameter_.set_state(state); }
  /// local() was written since the last gather was issued: it shows, or will show, an old value.
  bool is_stale() const { return differs_from(gathered_version_); }
  /// local() was written since the value was last shown.
  bool is_written_since_shown() const { return differs_from(shown_version_); }

  GradientSlotSink& slot() const { return *slot_; }
  /// A tensor in front layout with so many rows, in the slot's dtype: for what a reduce-scatter
  /// writes.
  Tensor new_reduced(std::int64_t rows) const;
  /// The reduced gradient that waits for its all-reduce; undefined for none.
  Tensor& partial() { return partial_; }
  const Tensor& partial() const { return partial_; }

 private:
  bool differs_from(std::uint64_t version) const {
    return version != kNever && parameter_.local().tensor().version() != version;
  }

  nn::Parameter parameter_;
  ParameterLayout layout_;
  ParameterChoice choice_;
  std::int64_t offset_ = 0;
  std::optional<DType> laid_out_dtype_;
  Tensor gathered_;
  // Versions of local(): none of them, as long as the thing has not happened.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t ordered_version_ = kNever;   // its writes are ordered before later gathers
  std::uint64_t gathered_version_ = kNever;  // the last gather sent it
  std::uint64_t shown_version_ = kNever;     // the value showed it last
  std::shared_ptr<GradientSlotSink> slot_;
  Tensor partial_;
};

}  // namespace tessera::fsdp
