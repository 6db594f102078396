#include "tessera/fsdp/runtime/group_layout.h"

#include <algorithm>
#include <utility>

#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/promotion.h"

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

// The dim to shard, checked, if `ranks` share it.
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

}  // namespace

GroupLayout::GroupLayout(const GroupRequest& request, const FullyShardOptions& options)
    : kind(request.kind),
      mesh(options.mesh),
      reduce_dtype(options.mixed_precision.reduce_dtype),
      keep_reduce_dtype(options.mixed_precision.keep_low_precision_gradients),
      cut_twice(options.shard_optimizer_over_replicas) {
  check_trainable_dtypes(request.parameters, request.name);
  if (kind == Kind::kFullyShard) shard_axis = mesh.axes().back();
  if (kind == Kind::kReplicate || mesh.axes().size() == 2) replica_axis = mesh.axes().front();
  if (shard_axis) shard_group = mesh.group(*shard_axis);
  if (replica_axis) replica_group = mesh.group(*replica_axis);
}

void GroupLayout::add_parameters(std::vector<ManagedParameter> managed,
                                 const FullyShardOptions& options, const std::string& group) {
  std::vector<AxisPlace> axes;
  int ranks = 1;
  const auto shard_over = [&](const std::string& axis) {
    axes.push_back({.axis = axis, .ranks = mesh.size(axis), .rank = mesh.coordinate(axis)});
    ranks *= axes.back().ranks;
  };
  if (shard_axis) shard_over(*shard_axis);
  if (cut_twice) shard_over(*replica_axis);
  for (ManagedParameter& each : managed) {
    check_unowned(each, group);
    const int dim = checked_dim(each, group, ranks, options.shard_placement);
    const auto& dtype = options.mixed_precision.param_dtype;
    const bool casts = dtype && !each.exempt;
    ParameterChoice choice{
        .compute_dtype = casts ? dtype : std::nullopt,
        .offload = options.offload.has_value(),
        .pinned = options.offload && options.offload->pin_memory,
        .extension = options.gather_extension ? options.gather_extension(each.parameter) : nullptr};
    meshes_.push_back(mesh_for(each.parameter, group));
    if (each.parameter.is_materialized() && !choice.offload)
      each.parameter.to(mesh.device(), each.parameter.dtype());
    const Shape shape = each.parameter.shape();
    parameters.emplace_back(std::move(each.parameter), ParameterLayout(shape, dim, axes),
                            std::move(choice));
  }
}

// Over the group's axes, and those that have sharded the parameter before (tensor parallelism).
std::shared_ptr<const nn::Mesh> GroupLayout::mesh_for(const nn::Parameter& parameter,
                                                      const std::string& group) const {
  const distributed::DeviceMesh other = distributed::mesh_of(parameter);
  if (!other.defined()) return distributed::make_mesh(mesh);
  TESSERA_CHECK(other.device().type == mesh.device().type, kWhere,
                "parameter \"{}\" of {} lies on a mesh of {}, the group on one of {}",
                parameter.name(), group, other.device().str(), mesh.device().str());
  TESSERA_CHECK(other.root() == mesh.root(), kWhere,
                "parameter \"{}\" of {} is cut over mesh {}, which has no root in common with {}: "
                "take both as sub-meshes of one mesh",
                parameter.name(), group, other.str(), mesh.str());
  return distributed::make_mesh(distributed::DeviceMesh::concatenate({mesh, other}));
}

void GroupLayout::take_over(const std::shared_ptr<nn::ParameterOwner>& owner) {
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].take_over(meshes_[i], owner);
  meshes_.clear();
}

TensorStorage GroupLayout::place_parameters(const std::string& group) {
  std::int64_t bytes = 0;
  std::optional<DType> widest;
  for (ShardedParameter& parameter : parameters) {
    if (parameter.parameter().requires_grad()) {
      const DType dtype = parameter.compute_dtype();
      widest = widest ? promote(*widest, dtype) : dtype;
    }
    if (parameter.aliases()) continue;
    bytes = align_up(bytes);
    parameter.set_offset(bytes);
    bytes += parameter.padded_bytes();
  }
  const TensorStorage gathered =
      TensorStorage::create(mesh.device(), static_cast<std::size_t>(bytes),
                            MemoryCategory::kGathered, group + ".gathered");
  for (ShardedParameter& parameter : parameters) {
    const DType fallback = widest.value_or(parameter.compute_dtype());
    parameter.lay_out(gathered, reduce_dtype.value_or(fallback));
  }
  return gathered;
}

bool GroupLayout::has_converted_parameters() const {
  return std::any_of(parameters.begin(), parameters.end(), [](const ShardedParameter& p) {
    return !p.is_laid_out_for(p.parameter().dtype());
  });
}

int GroupLayout::data_parallel_size() const {
  return (shard_group ? shard_group->size() : 1) * (replica_group ? replica_group->size() : 1);
}

bool GroupLayout::is_unsharded() const {
  return std::all_of(parameters.begin(), parameters.end(), [](const ShardedParameter& p) {
    return p.layout().is_whole() && !p.choice().offload;
  });
}

bool GroupLayout::is_cast() const {
  return std::all_of(parameters.begin(), parameters.end(),
                     [](const ShardedParameter& p) { return p.aliases() || p.is_cast_of_local(); });
}

bool GroupLayout::is_trained() const {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const ShardedParameter& p) { return p.parameter().requires_grad(); });
}

bool GroupLayout::has_pending_gradients() const {
  return std::any_of(parameters.begin(), parameters.end(), [](const ShardedParameter& p) {
    return p.slot().pending() || p.partial().defined();
  });
}

bool GroupLayout::is_stale() const {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const ShardedParameter& p) { return p.is_stale(); });
}

}  // namespace tessera::fsdp
