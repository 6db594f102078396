#pragma once

/// One parameter of a group: its place in the group's gathered memory, the rows that it sends, and
/// the slot that collects its gradient.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/fsdp/gather_extension.h"
#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/gradient_slot.h"
#include "tessera/fsdp/runtime/parameter_layout.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/ops/lists.h"

namespace tessera::fsdp {

/// The options of the call that concern one parameter.
struct ParameterChoice {
  std::optional<DType> compute_dtype = {};  ///< unset: the stored dtype
  bool offload = false;
  bool pinned = false;  ///< only with offload
  std::shared_ptr<GatherExtension> extension = {};
};

class ShardedParameter {
 public:
  ShardedParameter(nn::Parameter parameter, ParameterLayout layout, ParameterChoice choice)
      : parameter_(std::move(parameter)), layout_(std::move(layout)), choice_(std::move(choice)) {}

  /// Takes ownership of the parameter: from now on local() is this rank's shard.
  void take_over(std::shared_ptr<const nn::Mesh> mesh, std::shared_ptr<nn::ParameterOwner> owner);
  /// Makes value() a view of `gathered` at offset(), and creates a slot of `slot_dtype`. Called
  /// again after local() was converted.
  void lay_out(const TensorStorage& gathered, DType slot_dtype);

  const nn::Parameter& parameter() const { return parameter_; }
  const ParameterLayout& layout() const { return layout_; }
  const ParameterChoice& choice() const { return choice_; }
  DType compute_dtype() const { return choice_.compute_dtype.value_or(parameter_.dtype()); }
  /// Its bytes in the gathered memory: the padded rows of all ranks.
  std::int64_t padded_bytes() const;
  void set_offset(std::int64_t bytes) { offset_ = bytes; }
  std::int64_t offset() const { return offset_; }
  /// The value is local() itself: no gather and no copy is needed.
  bool aliases() const {
    return layout_.is_whole() && compute_dtype() == parameter_.dtype() && !choice_.offload &&
           !choice_.extension;
  }
  /// local() can be sent directly. Otherwise it is first copied to its place in the gathered
  /// memory.
  bool travels_as_it_is() const {
    return layout_.dim() == 0 && compute_dtype() == parameter_.dtype() && !choice_.offload &&
           !choice_.extension && !layout_.is_cut_twice();
  }
  /// The value is local() in another dtype, element for element.
  bool is_cast_of_local() const {
    return layout_.is_whole() && layout_.dim() == 0 && compute_dtype() != parameter_.dtype() &&
           !choice_.offload && !choice_.extension;
  }
  /// For a cast of local(): lets an optimizer write the value when it writes local(), while no
  /// module computes with it. The memory holds what the last gather wrote.
  void lend_cast_copy();
  /// No optimizer writes to the memory any more, for instance because it is released.
  void take_back_cast_copy() { parameter_.set_cast_copy({}); }
  bool is_laid_out_for(DType dtype) const { return laid_out_dtype_ == dtype; }

  /// This parameter's part of the gathered memory: the chunks of all ranks.
  const Tensor& gathered() const { return gathered_; }
  /// Chunks [first, first + count) of it, with a version counter of their own: the owner's writes
  /// to them do not count as overwriting the value.
  Tensor gathered_chunks(int first, int count) const;
  /// local() with its padding, in the stored dtype.
  Tensor padded_local() const { return parameter_.padded_local(); }
  /// Copies local() with its padding to `rows`, which have the front layout and possibly another
  /// dtype or device. A copy on one device is only added to `together`, for the caller to issue with
  /// those of other parameters. Counts the bytes by cause.
  void copy_local_to(const Tensor& rows, std::vector<AxpbySegment>& together,
                     CopyCounters& copies) const;

  /// local() is about to be converted: forgets its recorded versions and releases the memory of an
  /// aliased value.
  void note_conversion();
  /// True if local() was written since the last call. A gather then waits for compute before it
  /// reads local().
  bool has_new_writes();
  /// The current version of local() was sent.
  void note_gather() { gathered_version_ = parameter_.local().tensor().version(); }
  /// Makes the gathered value readable. If local() was written since the value was last shown, the
  /// value's version is bumped, so a backward that saved the old value reports an overwrite.
  void show_value();
  void hide_value(nn::ParameterState state) { parameter_.set_state(state); }
  /// local() was written since the last gather was issued: the gathered value is outdated.
  bool is_stale() const { return differs_from(gathered_version_); }
  /// local() was written since the value was last made readable.
  bool is_written_since_shown() const { return differs_from(shown_version_); }

  GradientSlotSink& slot() const { return *slot_; }
  /// A tensor of `rows` rows in front layout and in the slot's dtype: an output for reduce-scatter.
  Tensor new_reduced(std::int64_t rows) const;
  /// The reduce-scattered gradient that waits for its all-reduce; undefined if there is none.
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
  // Versions of local() at three events; kNever if the event has not happened.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t ordered_version_ = kNever;   // its writes are ordered before later gathers
  std::uint64_t gathered_version_ = kNever;  // sent by the last gather
  std::uint64_t shown_version_ = kNever;     // shown by the value last
  std::uint64_t value_version_ = kNever;     // of the value itself, when it was last shown
  std::shared_ptr<GradientSlotSink> slot_;
  Tensor partial_;
};

}  // namespace tessera::fsdp
