#include "tessera/fsdp/runtime/reduction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/lists.h"

namespace tessera::fsdp {
namespace {

std::int64_t bytes_of(const Tensor& x) {
  return x.numel() * static_cast<std::int64_t>(dtype_size(x.dtype()));
}

/// Moves `x` to the gradient's device. From the null device it returns zeros, so that a dry run
/// works.
Tensor brought_to(const Tensor& x, Device device) {
  if (x.device().is_null() && !device.is_null())
    return zeros(x.shape(), {.dtype = x.dtype(), .device = device});
  return to_device(x, device);
}

/// Appends the multiplication of x by `factor`, unless it changes nothing.
void scale(std::vector<AxpbySegment>& list, const Tensor& x, double factor) {
  if (factor != 1) list.push_back({.out = x, .x = x, .alpha = factor});
}

void keep(std::vector<MemoryBlock>& blocks, const Tensor& x) {
  TensorStorage storage = x.storage();
  blocks.push_back(storage.detach());
}

}  // namespace

DivideFactors split_divide_factor(double factor) {
  double pre = 1;
  while (std::fmod(factor, pre) == 0 && factor / pre > pre) pre *= 2;
  return {.pre = pre, .post = factor / pre};
}

bool Reduction::collect() {
  if (needs_zeros(group_.layout, group_.settings)) take_part_with_zeros();
  bool any_fresh = false;
  for (ShardedParameter& each : group_.layout.parameters) {
    const bool fresh = each.slot().pending();
    any_fresh |= fresh;
    const bool waits = fresh || each.partial().defined();  // also if the parameter was frozen since
    if (!waits && !each.parameter().requires_grad()) continue;
    if (waits) {
      members_.push_back({.parameter = &each, .fresh = fresh});
    } else {
      without_.push_back(each.parameter().name());
    }
  }
  return any_fresh || (!members_.empty() && !waits_for_all_reduce());
}

// Where this rank has no gradient, other ranks may have one. The number of ranks that have one is
// summed along, because a gradient that no rank has stays undefined.
void Reduction::take_part_with_zeros() {
  std::vector<float> used;
  for (ShardedParameter& each : group_.layout.parameters) {
    const nn::Parameter& parameter = each.parameter();
    if (!parameter.requires_grad()) continue;
    if (!group_.settings.zeros_for_unused && !parameter.has_tag("optional")) continue;
    const bool here = each.slot().pending();
    if (waits_for_all_reduce()) {  // the replicas count when they take part
      if (here) state_.used_before.insert(parameter.id());
    } else {
      const bool before = state_.used_before.erase(parameter.id()) != 0;
      if (!parameter.grad().defined() || state_.is_use_unknown(parameter)) {
        used.push_back(here || before ? 1.0F : 0.0F);
        use_count_.parameters.push_back(parameter);
      }
    }
    if (!here) each.slot().fill_with_zeros();
  }
  if (used.empty()) return;
  const auto count = static_cast<std::int64_t>(used.size());
  use_count_.ranks = to_device(Tensor::from_vector(used, {count}), group_.layout.mesh.device());
}

void Reduction::count_users(distributed::ProcessGroup& group) {
  if (use_count_.ranks.defined())
    distributed::all_reduce(group, std::vector{use_count_.ranks}, distributed::ReduceOp::kSum,
                            label());
}

std::string Reduction::label() const {
  std::string text = group_.name;
  for (std::size_t i = 0; i < without_.size(); ++i)
    text += (i == 0 ? " without " : ", ") + without_[i];
  return text;
}

// Work issued from here on runs on `stream`, after all work issued so far.
void Reduction::use(const DeviceStream& stream) {
  if (stream_ == stream) return;
  stream.wait((stream_.defined() ? stream_ : comm_.compute()).record("gradients"));
  stream_ = stream;
}

bool Reduction::waits_for_all_reduce() const {
  return group_.layout.shard_group && group_.layout.replica_group && !group_.settings.all_reduce;
}

void Reduction::run() {
  comm_.finish_reduces(std::max(0, comm_.max_reduces_in_flight - 1));
  const double factor = group_.settings.divide_factor.value_or(
      static_cast<double>(group_.layout.data_parallel_size()));
  const bool f16 = members_.front().parameter->slot().dtype() == DType::kF16;
  factors_ = f16 ? split_divide_factor(factor) : DivideFactors{.pre = 1, .post = factor};
  try {
    issue();
  } catch (...) {  // the issued work still uses memory that is released here
    comm_.abandon();
    throw;
  }
  state_.done = stream_.record("reduced");
  if (use_count_.ranks.defined()) state_.use_counts.push_back(std::move(use_count_));
  comm_.hold_results(state_.done, std::move(until_done_));
  if (comm_.max_reduces_in_flight == 0) {
    comm_.finish_all_reduces();
  } else {
    comm_.finish_reduces(comm_.max_reduces_in_flight);
  }
}

void Reduction::issue() {
  add_waiting_gradients();
  make_room_for_results();
  scatter();
  if (waits_for_all_reduce()) {
    for (Member& member : members_) member.parameter->partial() = member.sum;
    return;
  }
  all_reduce();
  all_reduce_hook();
  deliver();
}

// On compute, which owns them.
void Reduction::add_waiting_gradients() {
  std::vector<AxpbySegment> waiting;
  for (const Member& member : members_) member.parameter->slot().take_waiting(waiting);
  axpby_(waiting);
}

// All results are compute's memory, since grad() is read and dropped on compute.
void Reduction::make_room_for_results() {
  const MemoryCategoryScope category(MemoryCategory::kGradient);
  for (Member& member : members_) {
    ShardedParameter& parameter = *member.parameter;
    const ParameterLayout& layout = parameter.layout();
    if (!member.fresh) {
      member.sum = std::exchange(parameter.partial(), {});
    } else if (!layout.is_own_sum()) {
      member.slot = parameter.slot().padded();
      member.sum = parameter.new_reduced(layout.roomy_chunk_rows());
    } else {
      member.sum = parameter.slot().take();
    }
    if (waits_for_all_reduce()) continue;
    const nn::Parameter& handle = parameter.parameter();
    const Tensor existing = handle.grad();
    const DType dtype = group_.layout.keep_reduce_dtype ? member.sum.dtype() : handle.dtype();
    const bool as_it_is = member.sum.dtype() == dtype && layout.dim() == 0 &&
                          !parameter.choice().offload && !layout.is_cut_twice();
    if (existing.defined()) {
      member.target = existing;
    } else if (!as_it_is) {
      const ParameterChoice& choice = parameter.choice();
      const TensorOptions options{.dtype = dtype,
                                  .device = choice.offload ? kCpu : member.sum.device(),
                                  .pinned = choice.offload && choice.pinned};
      member.target = Tensor::empty_named(layout.local_shape(), options, MemoryCategory::kGradient,
                                          handle.name() + ".grad");
    }
  }
}

void Reduction::scatter() {
  if (!group_.layout.shard_group) return;
  use(comm_.reduce());
  const StreamGuard guard(stream_);
  std::vector<Tensor> slots;
  std::vector<Tensor> sums;
  std::vector<AxpbySegment> scaled;
  std::vector<MemoryBlock> until_scattered;
  for (const Member& member : members_) {
    if (!member.fresh) continue;
    scale(scaled, member.slot.defined() ? member.slot : member.sum, 1 / factors_.pre);
    if (!member.slot.defined()) continue;
    slots.push_back(member.slot);
    const std::int64_t rows = member.parameter->layout().chunk_rows();
    sums.push_back(member.sum.slice(0, 0, rows));
    if (rows < member.sum.dim(0)) fill_(member.sum.slice(0, rows, member.sum.dim(0)), 0);
  }
  axpby_(scaled);
  const auto& own_group = group_.settings.reduce_group;
  distributed::ProcessGroup& group = own_group ? *own_group : *group_.layout.shard_group;
  if (!slots.empty()) {
    if (group_.settings.reduce_scatter) {
      group_.settings.reduce_scatter(group, slots, sums, label());
    } else {
      distributed::reduce_scatter(group, slots, sums, distributed::ReduceOp::kSum, label());
    }
  }
  std::vector<AxpbySegment> added;
  for (const Member& member : members_) {
    if (!member.fresh) continue;
    if (member.slot.defined()) until_scattered.push_back(member.parameter->slot().release());
    Tensor& partial = member.parameter->partial();
    if (partial.defined())
      added.push_back({.out = member.sum, .x = std::exchange(partial, {}), .beta = 1});
  }
  axpby_(added);
  for (const AxpbySegment& each : added) keep(until_done_, each.x);
  count_users(group);
  comm_.hold_slots(stream_.record("scattered"), std::move(until_scattered));
}

void Reduction::all_reduce() {
  if (!group_.layout.replica_group) return;
  use(comm_.all_reduce());
  const StreamGuard guard(stream_);
  std::vector<Tensor> sums;
  std::vector<AxpbySegment> scaled;
  for (const Member& member : members_) {
    if (!group_.layout.shard_group) scale(scaled, member.sum, 1 / factors_.pre);
    sums.push_back(member.sum);
  }
  axpby_(scaled);
  distributed::ProcessGroup& group = *group_.layout.replica_group;
  if (!group_.layout.cut_twice) {
    distributed::all_reduce(group, sums, distributed::ReduceOp::kSum, label());
  } else {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      const ParameterLayout& layout = member.parameter->layout();
      const std::int64_t rows = layout.padded_local_rows();
      sums[i] = member.sum.slice(0, 0, rows * layout.replicas());
      parts.push_back(member.sum.slice(0, rows * layout.replica(), rows * (layout.replica() + 1)));
      member.sum = parts.back();
    }
    distributed::reduce_scatter(group, sums, parts, distributed::ReduceOp::kSum, label());
  }
  count_users(group);
}

void Reduction::all_reduce_hook() {
  const GroupSettings& settings = group_.settings;
  if (!settings.all_reduce_hook) return;
  if (settings.hook_stream) use(*settings.hook_stream);
  const StreamGuard guard(stream_);
  std::vector<Tensor> rows;
  for (const Member& member : members_)
    rows.push_back(member.sum.slice(0, 0, member.parameter->layout().local_rows()));
  settings.all_reduce_hook(rows);
}

Tensor Reduction::local_rows(const Member& member) const {
  const ParameterLayout& layout = member.parameter->layout();
  return layout.from_front(member.sum.slice(0, 0, layout.local_rows()));
}

void Reduction::deliver() {
  // An earlier reduction that ended on another stream may still be writing grad().
  DeviceStream& last = state_.written_on;
  if (last.defined() && !(last == stream_)) stream_.wait(state_.done);
  last = stream_;
  const StreamGuard guard(stream_);
  const double alpha = 1 / factors_.post;
  std::vector<AxpbySegment> together;
  for (Member& member : members_) {
    const Tensor rows = local_rows(member);
    if (!member.target.defined()) {
      scale(together, rows, alpha);
      member.target = rows;
      continue;
    }
    const double beta = member.parameter->parameter().grad().defined() ? 1 : 0;
    if (moves_to_host(member)) {
      move_to_host(member, rows, {.alpha = alpha, .beta = beta});
    } else {
      together.push_back({.out = member.target, .x = rows, .alpha = alpha, .beta = beta});
    }
    auto& cause = member.parameter->choice().offload ? comm_.copies.transfer : comm_.copies.reduced;
    cause += bytes_of(member.target);
  }
  axpby_(together);
  for (const Member& member : members_) {
    nn::Parameter parameter = member.parameter->parameter();
    parameter.set_grad(member.target);
    if (!(member.target.storage() == member.sum.storage())) keep(until_done_, member.sum);
  }
}

bool Reduction::moves_to_host(const Member& member) {
  return member.target.device() != member.sum.device();
}

void Reduction::move_to_host(const Member& member, const Tensor& rows,
                             const AxpbyOptions& factors) {
  if (factors.beta == 0 && rows.device().is_cuda() && member.target.storage().is_pinned()) {
    // Scales on the device. The host branch below would give the same, but make the host wait.
    const Tensor scaled =
        Tensor::empty_named(rows.shape(), {.dtype = member.target.dtype(), .device = rows.device()},
                            MemoryCategory::kGradient, {});
    axpby_(scaled, rows, {.alpha = factors.alpha});
    transfer_(member.target, scaled);
  } else {
    axpby_(member.target, brought_to(rows, member.target.device()), factors);
  }
}

std::vector<nn::Parameter> Reduction::reduced() const {
  std::vector<nn::Parameter> out;
  if (waits_for_all_reduce()) return out;
  for (const Member& member : members_) {
    const nn::Parameter& parameter = member.parameter->parameter();
    if (!state_.is_use_unknown(parameter)) out.push_back(parameter);
  }
  return out;
}

bool ReductionState::is_use_unknown(const nn::Parameter& parameter) const {
  return std::any_of(use_counts.begin(), use_counts.end(), [&](const UseCount& count) {
    return std::any_of(count.parameters.begin(), count.parameters.end(),
                       [&](const nn::Parameter& each) { return each.same_as(parameter); });
  });
}

bool needs_zeros(const GroupLayout& layout, const GroupSettings& settings) {
  return settings.zeros_for_unused ||
         std::any_of(layout.parameters.begin(), layout.parameters.end(),
                     [](const ShardedParameter& p) { return p.parameter().has_tag("optional"); });
}

std::vector<nn::Parameter> drop_unused_gradients(ReductionState& state) {
  std::map<const void*, float> users;  // over all reductions of the iteration
  std::vector<nn::Parameter> counted;
  for (const UseCount& count : std::exchange(state.use_counts, {})) {
    const std::vector<float> ranks = count.ranks.to_vector<float>();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto [entry, is_new] = users.emplace(count.parameters[i].id(), 0.0F);
      entry->second += ranks[i];
      if (is_new) counted.push_back(count.parameters[i]);
    }
  }
  std::vector<nn::Parameter> used;
  for (nn::Parameter& parameter : counted) {
    if (users.at(parameter.id()) == 0) {
      parameter.set_grad({});
    } else if (parameter.grad().defined()) {
      used.push_back(parameter);
    }
  }
  return used;
}

}  // namespace tessera::fsdp
