#include "tessera/fsdp/param_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh_impl.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/trace.h"

namespace tessera::fsdp {
namespace {

/// Every parameter starts on such a boundary of the gathered memory.
constexpr std::int64_t kAlignment = 256;

std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The bytes of a contiguous tensor as u8: how parameters of different dtypes travel in one gather.
Tensor as_bytes(const Tensor& x) {
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
  return Tensor::over(x.storage(), {x.numel() * size}, {1}, x.offset() * size, DType::kU8);
}

void check_trainable_dtypes(const std::vector<nn::Parameter>& parameters) {
  const nn::Parameter* first = nullptr;
  for (const nn::Parameter& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    if (first == nullptr) first = &parameter;
    TESSERA_CHECK(parameter.dtype() == first->dtype(), "fsdp.fully_shard",
                  "trainable parameters of one group have one dtype, but \"{}\" is {} and \"{}\" "
                  "is {}: shard their "
                  "modules in calls of their own",
                  first->name(), dtype_name(first->dtype()), parameter.name(),
                  dtype_name(parameter.dtype()));
  }
}

}  // namespace

ParamGroup::ParamGroup(std::string name, std::shared_ptr<distributed::ProcessGroup> process_group)
    : name_(std::move(name)), process_group_(std::move(process_group)) {}

std::shared_ptr<ParamGroup> ParamGroup::create(std::string name,
                                               std::vector<nn::Parameter> parameters,
                                               const distributed::DeviceMesh& mesh) {
  check_trainable_dtypes(parameters);
  const std::string& axis = mesh.axes().front();
  std::shared_ptr<ParamGroup> group(new ParamGroup(std::move(name), mesh.group(axis)));
  for (nn::Parameter& parameter : parameters) {
    TESSERA_CHECK_AS(StateError, parameter.owner() == nullptr, "fsdp.fully_shard",
                     "parameter \"{}\" of {} already belongs to group {}: shard inner modules "
                     "before outer ones, and tie "
                     "parameters only inside one group",
                     parameter.name(), group->name_, parameter.owner()->group_name());
    group->parameters_.emplace_back(std::move(parameter), mesh.size(axis), mesh.coordinate(axis));
  }
  group->lay_out(mesh);
  return group;
}

void ParamGroup::lay_out(const distributed::DeviceMesh& mesh) {
  const std::string& axis = mesh.axes().front();
  std::vector<nn::ShardSpec> specs;
  std::int64_t bytes = 0;
  for (ShardedParameter& parameter : parameters_) {
    specs.push_back(parameter.spec_for(axis));
    if (specs.back().is_whole()) continue;
    bytes = align_up(bytes);
    parameter.set_offset(bytes);
    bytes += parameter.padded_bytes();
  }
  gathered_ = Storage::create(mesh.device(), static_cast<std::size_t>(bytes),
                              MemoryCategory::kGathered, name_ + ".gathered");
  const std::shared_ptr<const nn::Mesh> nn_mesh = distributed::make_mesh(mesh);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].attach(gathered_, specs[i], nn_mesh, shared_from_this());
  }
}

bool ParamGroup::has_pending_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const ShardedParameter& p) { return p.sink().pending(); });
}

bool ParamGroup::is_stale() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const ShardedParameter& p) { return p.is_stale(); });
}

void ParamGroup::note_writes_ordered() {
  for (ShardedParameter& parameter : parameters_) parameter.has_new_writes();
}

void ParamGroup::unshard(CommContext& comm, int live) {
  if (state_ != GroupState::kSharded) return;
  annotate("fsdp", name_, "unshard");
  comm.make_room(live);
  bool writes = false;
  for (ShardedParameter& parameter : parameters_) writes |= parameter.has_new_writes();
  if (writes) comm.gather().wait(comm.compute().record("shards written"));
  issue_gather(comm);
  state_ = GroupState::kGathering;
}

void ParamGroup::issue_gather(CommContext& comm) {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (const ShardedParameter& parameter : parameters_) {
    if (parameter.is_whole()) continue;
    inputs.push_back(parameter.padded_local());
    outputs.push_back(parameter.gathered());
  }
  const StreamGuard on_gather(comm.gather());
  gathered_.materialize();
  gathered_.begin_fill();
  if (!outputs.empty()) {
    const bool mixed = std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& t) {
      return t.dtype() != outputs.front().dtype();
    });
    if (mixed) {
      std::transform(inputs.begin(), inputs.end(), inputs.begin(), as_bytes);
      std::transform(outputs.begin(), outputs.end(), outputs.begin(), as_bytes);
    }
    distributed::all_gather(*process_group_, inputs, outputs, name_);
  }
  for (ShardedParameter& parameter : parameters_) parameter.note_gather();
  gather_done_ = comm.gather().record("gathered");
}

void ParamGroup::wait_for_unshard(CommContext& comm, int live) {
  if (state_ != GroupState::kSharded && is_stale()) reshard(comm);
  unshard(comm, live);
  if (state_ == GroupState::kFull) return;
  comm.compute().wait(gather_done_);
  gathered_.end_fill();
  for (ShardedParameter& parameter : parameters_) parameter.show_value();
  watch_local_gradients();
  state_ = GroupState::kFull;
}

// Expressions over local() add to grad() on compute, perhaps while a reduce is writing it: they
// wait for it first.
void ParamGroup::watch_local_gradients() {
  if (std::exchange(watches_local_gradients_, true)) return;
  for (const ShardedParameter& parameter : parameters_) {
    Variable local = parameter.parameter().local();
    local.register_hook([weak = weak_from_this(), device = local.device()](const Variable&) {
      const auto group = weak.lock();
      if (group && group->reduce_done_.is_recorded())
        current_stream(device).wait(group->reduce_done_);
      return Variable();
    });
  }
}

void ParamGroup::reshard(CommContext& comm) {
  if (state_ == GroupState::kSharded) return;
  annotate("fsdp", name_, "reshard");
  for (ShardedParameter& parameter : parameters_) parameter.hide_value();
  comm.park(gathered_.detach());
  state_ = GroupState::kSharded;
}

void ParamGroup::finish(CommContext& comm) noexcept {
  try {
    reshard(comm);
    for (const Event& event : {gather_done_, reduce_done_}) {
      if (event.is_recorded()) event.synchronize();
    }
  } catch (const std::exception&) {
    // What failed on a stream was reported where it happened; the work is over all the same.
  }
}

void ParamGroup::check_not_stale() const {
  for (const ShardedParameter& parameter : parameters_) {
    TESSERA_CHECK_AS(StateError, !parameter.is_written_since_shown(), "fsdp.backward",
                     "parameter \"{}\" of group {} was written between forward and backward: its "
                     "gradient would belong to "
                     "neither value; write parameters after backward",
                     parameter.parameter().name(), name_);
  }
}

void ParamGroup::on_gradient(const std::function<void()>& listener) {
  for (ShardedParameter& parameter : parameters_) parameter.sink().set_listener(listener);
}

void ParamGroup::begin_pass() {
  for (ShardedParameter& parameter : parameters_) parameter.sink().begin_pass();
}

bool ParamGroup::ready_to_reduce() const {
  const auto unfinished = [](const ShardedParameter& p) {
    return p.sink().pending() && !p.sink().is_complete();
  };
  return has_pending_gradients() &&
         std::none_of(parameters_.begin(), parameters_.end(), unfinished);
}

void ParamGroup::reduce(CommContext& comm) {
  std::vector<ShardedParameter*> members;
  for (ShardedParameter& parameter : parameters_) {
    if (parameter.sink().pending()) members.push_back(&parameter);
  }
  if (members.empty()) return;
  comm.finish_reduces(std::max(0, comm.max_reduces_in_flight - 1));
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (const ShardedParameter* member : members) {
    inputs.push_back(member->sink().padded());
    // Compute's memory, since compute is where grad() is read and dropped.
    outputs.push_back(member->new_reduced());
  }
  comm.reduce().wait(comm.compute().record("gradients"));
  std::vector<Block> until_reduced;
  {
    const StreamGuard on_reduce(comm.reduce());
    distributed::reduce_scatter(*process_group_, inputs, outputs, distributed::ReduceOp::kSum,
                                name_);
    const double scale = 1.0 / process_group_->size();
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Tensor reduced = members[i]->real_rows(outputs[i]);
      const Tensor existing = members[i]->parameter().grad();
      const Tensor& target = existing.defined() ? existing : reduced;
      axpby_(target, reduced, {.alpha = scale, .beta = existing.defined() ? 1.0 : 0.0});
      nn::Parameter parameter = members[i]->parameter();
      parameter.set_grad(target);
      until_reduced.push_back(members[i]->sink().release());
      if (!existing.defined()) continue;
      Storage storage = reduced.storage();
      until_reduced.push_back(storage.detach());
    }
  }
  reduce_done_ = comm.reduce().record("reduced");
  comm.hold(reduce_done_, std::move(until_reduced));
  comm.finish_reduces(comm.max_reduces_in_flight);
}

void ParamGroup::discard_pending_gradients() {
  for (ShardedParameter& parameter : parameters_) parameter.sink().discard();
}

}  // namespace tessera::fsdp
