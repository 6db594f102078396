#include "tessera/fsdp/runtime/param_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/trace.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.fully_shard";
/// Alignment of every parameter in the gathered memory, in bytes.
constexpr std::int64_t kAlignment = 256;

std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void check_trainable_dtypes(const std::vector<ManagedParameter>& managed,
                            const std::string& group) {
  const ManagedParameter* first = nullptr;
  for (const ManagedParameter& each : managed) {
    if (!each.parameter.requires_grad()) continue;
    if (first == nullptr) first = &each;
    TESSERA_CHECK(each.parameter.dtype() == first->parameter.dtype(), kWhere,
                  "trainable parameters of one group have one dtype, but of {} \"{}\" is {} and "
                  "\"{}\" is {}: shard their modules in calls of their own",
                  group, first->name, dtype_name(first->parameter.dtype()), each.name,
                  dtype_name(each.parameter.dtype()));
  }
}

void check_unowned(const ManagedParameter& managed, const std::string& group) {
  const nn::ParameterOwner* owner = managed.parameter.owner();
  TESSERA_CHECK_AS(StateError, owner == nullptr, kWhere,
                   "parameter \"{}\" of {} already belongs to group {}, where it is \"{}\": shard "
                   "inner modules before outer ones, and tie parameters only inside one group",
                   managed.name, group, owner->group_name(), managed.parameter.name());
}

// The dim to shard, checked for `ranks` shards in all.
int checked_dim(const ManagedParameter& managed, const std::string& group, int ranks,
                const ShardPlacement& placement) {
  const Shape& shape = managed.parameter.shape();
  TESSERA_CHECK(shape.ndim() > 0, kWhere,
                "parameter \"{}\" of {} has 0 dims; sharding needs at least 1: reshape it to [1]",
                managed.name, group);
  const auto chosen = placement ? placement(managed.parameter) : std::nullopt;
  if (!chosen) return 0;
  const int dim = chosen->dim < 0 ? chosen->dim + shape.ndim() : chosen->dim;
  TESSERA_CHECK(dim >= 0 && dim < shape.ndim(), kWhere,
                "Shard({}) is out of range for parameter \"{}\" of {}, which has {} dims",
                chosen->dim, managed.name, group, shape.ndim());
  TESSERA_CHECK(dim == 0 || shape[dim] % ranks == 0, kWhere,
                "dim {} of parameter \"{}\" of {} has {} elements, which {} ranks cannot share "
                "evenly; only dim 0 may be uneven",
                dim, managed.name, group, shape[dim], ranks);
  return dim;
}

std::shared_ptr<distributed::ProcessGroup> neighbours(distributed::ProcessGroup& group, int n) {
  std::vector<int> members;
  for (int i = 0; i < n; ++i) members.push_back(group.rank() / n * n + i);
  return group.subgroup(members);
}

}  // namespace

ParamGroup::ParamGroup(GroupRequest& request, const FullyShardOptions& options)
    : name_(std::move(request.name)),
      kind_(request.kind),
      mesh_(options.mesh),
      reduce_dtype_(options.mixed_precision.reduce_dtype),
      keep_reduce_dtype_(options.mixed_precision.keep_low_precision_gradients),
      cut_twice_(options.shard_optimizer_over_replicas) {
  const std::vector<std::string>& axes = mesh_.axes();
  if (kind_ == Kind::kFullyShard) shard_axis_ = axes.back();
  if (kind_ == Kind::kReplicate || axes.size() == 2) replica_axis_ = axes.front();
  if (shard_axis_) shard_group_ = mesh_.group(*shard_axis_);
  if (replica_axis_) replica_group_ = mesh_.group(*replica_axis_);
  const std::optional<int>& kept = options.reshard_after_forward.ranks();
  if (!kept || !shard_group_) return;
  const int ranks = shard_group_->size();
  TESSERA_CHECK(*kept >= 1 && ranks % *kept == 0, kWhere,
                "reshard_after_forward = {} of {} must be at least 1 and divide the {} ranks of "
                "axis \"{}\"",
                *kept, name_, ranks, *shard_axis_);
  if (*kept == 1 || *kept == ranks) return;
  kept_ranks_ = *kept;
  kept_group_ = neighbours(*shard_group_, kept_ranks_);
}

std::shared_ptr<ParamGroup> ParamGroup::create(GroupRequest request,
                                               const FullyShardOptions& options) {
  std::vector<ManagedParameter> managed = std::move(request.parameters);
  check_trainable_dtypes(managed, request.name);
  std::shared_ptr<ParamGroup> group(new ParamGroup(request, options));
  group->add_parameters(std::move(managed), options);
  group->lay_out();
  return group;
}

void ParamGroup::add_parameters(std::vector<ManagedParameter> managed,
                                const FullyShardOptions& options) {
  std::vector<AxisPlace> axes;
  int ranks = 1;
  const auto cut_by = [&](const std::string& axis) {
    axes.push_back({.axis = axis, .ranks = mesh_.size(axis), .rank = mesh_.coordinate(axis)});
    ranks *= axes.back().ranks;
  };
  if (shard_axis_) cut_by(*shard_axis_);
  if (cut_twice_) cut_by(*replica_axis_);
  std::vector<std::shared_ptr<const nn::Mesh>> meshes;
  for (ManagedParameter& each : managed) {
    check_unowned(each, name_);
    const int dim = checked_dim(each, name_, ranks, options.shard_placement);
    const auto& dtype = options.mixed_precision.param_dtype;
    const bool casts = dtype && !each.exempt;
    ParameterChoice choice{
        .compute_dtype = casts ? dtype : std::nullopt,
        .offload = options.offload.has_value(),
        .pinned = options.offload && options.offload->pin_memory,
        .extension = options.gather_extension ? options.gather_extension(each.parameter) : nullptr};
    meshes.push_back(mesh_for(each.parameter));
    if (each.parameter.is_materialized() && !choice.offload)
      each.parameter.to(mesh_.device(), each.parameter.dtype());
    const Shape shape = each.parameter.shape();
    parameters_.emplace_back(std::move(each.parameter), ParameterLayout(shape, dim, axes),
                             std::move(choice));
  }
  // Nothing was changed up to here, so an error leaves the model as it was.
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].take_over(meshes[i], shared_from_this());
}

ParamGroup::~ParamGroup() {
  if (!gathered_.defined()) return;
  try {
    gathered_.retire("the module of group " + name_ +
                     ", which gathers it, is gone: keep the model until backward has run");
  } catch (const std::exception&) {
    // Out of host memory for the text: the storage is then released without it.
  }
}

// The group's axes, and those that have sharded the parameter before (tensor parallelism).
std::shared_ptr<const nn::Mesh> ParamGroup::mesh_for(const nn::Parameter& parameter) const {
  const distributed::DeviceMesh other = distributed::mesh_of(parameter);
  if (!other.defined()) return distributed::make_mesh(mesh_);
  TESSERA_CHECK(other.device().type == mesh_.device().type, kWhere,
                "parameter \"{}\" of {} lies on a mesh of {}, the group on one of {}",
                parameter.name(), name_, other.device().str(), mesh_.device().str());
  TESSERA_CHECK(other.root() == mesh_.root(), kWhere,
                "parameter \"{}\" of {} is cut over mesh {}, which has no root in common with {}: "
                "take both as sub-meshes of one mesh",
                parameter.name(), name_, other.str(), mesh_.str());
  return distributed::make_mesh(distributed::DeviceMesh::concatenate({mesh_, other}));
}

void ParamGroup::lay_out() {
  std::int64_t bytes = 0;
  std::optional<DType> widest;
  for (ShardedParameter& parameter : parameters_) {
    if (parameter.parameter().requires_grad()) {
      const DType dtype = parameter.compute_dtype();
      widest = widest ? promote(*widest, dtype) : dtype;
    }
    if (parameter.aliases()) continue;
    bytes = align_up(bytes);
    parameter.set_offset(bytes);
    bytes += parameter.padded_bytes();
  }
  gathered_ = Storage::create(mesh_.device(), static_cast<std::size_t>(bytes),
                              MemoryCategory::kGathered, name_ + ".gathered");
  for (ShardedParameter& parameter : parameters_) {
    const DType fallback = widest.value_or(parameter.compute_dtype());
    parameter.lay_out(gathered_, reduce_dtype_.value_or(fallback));
    parameter.slot().set_listener(listener_);
  }
}

void ParamGroup::keep_up_with_conversions() {
  const bool converted = std::any_of(
      parameters_.begin(), parameters_.end(),
      [](const ShardedParameter& p) { return !p.is_laid_out_for(p.parameter().dtype()); });
  if (converted) lay_out();
}

void ParamGroup::prepare_conversion() {
  TESSERA_CHECK_AS(StateError, !has_pending_gradients(), "fsdp.to",
                   "gradients of group {} wait to be reduced: convert the model between steps, or "
                   "discard_pending_gradients()",
                   name_);
  if (before_conversion_) before_conversion_();
  for (ShardedParameter& parameter : parameters_) parameter.note_conversion();
}

int ParamGroup::data_parallel_size() const {
  return (shard_group_ ? shard_group_->size() : 1) * (replica_group_ ? replica_group_->size() : 1);
}

bool ParamGroup::is_trained() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const ShardedParameter& p) { return p.parameter().requires_grad(); });
}

bool ParamGroup::has_pending_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(), [](const ShardedParameter& p) {
    return p.slot().pending() || p.partial().defined();
  });
}

bool ParamGroup::is_stale() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const ShardedParameter& p) { return p.is_stale(); });
}

std::int64_t ParamGroup::accumulated_bytes() const {
  std::int64_t bytes = 0;
  for (const ShardedParameter& parameter : parameters_)
    bytes += parameter.slot().accumulated_bytes();
  return bytes;
}

void ParamGroup::note_writes_ordered() {
  for (ShardedParameter& parameter : parameters_) parameter.has_new_writes();
}

void ParamGroup::check_not_shown_whole() const {
  TESSERA_CHECK_AS(StateError, shown_whole_ == 0, "fsdp.FullParameters",
                   "group {} runs while a FullParameters guard holds its parameters: close the "
                   "guard first",
                   name_);
}

void ParamGroup::wait_for_unshard(CommContext& comm, const GatherRoom& room) {
  check_not_shown_whole();
  if (state_ != GroupState::kSharded && is_stale()) reshard(comm);
  unshard(comm, room);
  if (state_ == GroupState::kFull) return;
  comm.compute().wait(gather_done_);
  kept_.clear();
  gathered_.end_fill();
  for (ShardedParameter& parameter : parameters_) parameter.show_value();
  watch_local_gradients();
  state_ = GroupState::kFull;
}

// Expressions over local() add to grad() on compute, possibly while a reduction writes it. They
// wait for the reduction first.
void ParamGroup::watch_local_gradients() {
  if (std::exchange(watches_local_gradients_, true)) return;
  for (const ShardedParameter& parameter : parameters_) {
    Variable local = parameter.parameter().local();
    local.register_hook([weak = weak_from_this(), device = mesh_.device()](const Variable&) {
      const auto group = weak.lock();
      if (group && group->reduce_done_.is_recorded())
        current_stream(device).wait(group->reduce_done_);
      return Variable();
    });
  }
}

void ParamGroup::reshard(CommContext& comm) {
  if (state_ == GroupState::kSharded) return;
  annotate(kAnnotationDomain, name_, kReshardPhase);
  for (ShardedParameter& parameter : parameters_)
    parameter.hide_value(nn::ParameterState::kSharded);
  const GroupState before = std::exchange(state_, GroupState::kSharded);
  if (before == GroupState::kGathering && !kept_.empty()) comm.finish_quietly(gather_done_);
  kept_.clear();
  if (before != GroupState::kPostForward) comm.park(gathered_.detach());
}

void ParamGroup::wait_for_readers(CommContext& comm) const {
  if (gather_done_.is_recorded()) comm.finish_quietly(gather_done_);
}

void ParamGroup::reshard_to_part(CommContext& comm) {
  if (state_ != GroupState::kFull) return;
  if (kept_ranks_ == 0 || gathered_.bytes() == 0) return reshard(comm);
  annotate(kAnnotationDomain, name_, kReshardPhase);
  const MemoryCategoryScope category(MemoryCategory::kGathered);
  for (ShardedParameter& parameter : parameters_) {
    parameter.hide_value(nn::ParameterState::kPostForward);
    if (parameter.aliases()) continue;
    const int chunks = shard_group_->size() / kept_ranks_;
    const Tensor part = parameter.gathered_chunks(kept_group_->rank() * chunks, chunks);
    kept_.push_back(clone(part));
    comm.copies.kept_part += part.numel() * static_cast<std::int64_t>(dtype_size(part.dtype()));
  }
  kept_done_ = comm.compute().record("part kept");
  comm.park(gathered_.detach());
  state_ = GroupState::kPostForward;
}

void ParamGroup::end_step(CommContext& comm) {
  if (chunks_.empty()) return;
  const StreamGuard on_gather(comm.gather());
  chunks_.clear();
}

void ParamGroup::finish(CommContext& comm) noexcept {
  try {
    reshard(comm);
    for (const Event& event : {gather_done_, reduce_done_}) {
      if (event.is_recorded()) event.synchronize();
    }
  } catch (const std::exception&) {
    // Errors of a stream were reported elsewhere. The work is over in any case.
  }
}

void ParamGroup::check_not_stale() const {
  for (const ShardedParameter& parameter : parameters_) {
    TESSERA_CHECK_AS(StateError, !parameter.is_written_since_shown(), "fsdp.backward",
                     "parameter \"{}\" of group {} was written between forward and backward: its "
                     "gradient would belong to neither value; write parameters after backward",
                     parameter.parameter().name(), name_);
  }
}

void ParamGroup::check_places() const {
  for (const ShardedParameter& parameter : parameters_) {
    const Device wanted = parameter.choice().offload ? kCpu : mesh_.device();
    const Device found = parameter.parameter().local().device();
    TESSERA_CHECK_AS(
        StateError, found == wanted, "fsdp.forward",
        "parameter \"{}\" of group {} lies on {}; its shards live on {}: initialise or "
        "move it there",
        parameter.parameter().name(), name_, found.str(), wanted.str());
  }
}

void ParamGroup::on_gradient(const std::function<void()>& listener) {
  listener_ = listener;
  for (ShardedParameter& parameter : parameters_) parameter.slot().set_listener(listener);
}

void ParamGroup::begin_pass() {
  for (ShardedParameter& parameter : parameters_) parameter.slot().begin_pass();
}

}  // namespace tessera::fsdp
