#include "tessera/fsdp/state/full_parameters.h"

#include <exception>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/runtime/param_group.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.FullParameters";

bool is_sharded(const nn::Parameter& parameter) { return parameter.owner() != nullptr; }

// Collects the sharded and replicated parameters, each once: tied parameters have one value.
void collect(nn::Module& module, bool recurse, std::set<const void*>& seen,
             std::vector<nn::Parameter>& out) {
  for (const nn::NamedParameter& named : module.own_parameters()) {
    const bool is_new = seen.insert(named.parameter.id()).second;
    if (is_new && is_sharded(named.parameter)) out.push_back(named.parameter);
  }
  for (const nn::NamedModule& child : module.children()) {
    if (recurse || !has_state(*child.module)) collect(*child.module, recurse, seen, out);
  }
}

void check_between_steps(const std::vector<nn::Parameter>& parameters) {
  TESSERA_CHECK_AS(StateError, !in_backward(), kWhere,
                   "a backward pass runs: open the guard after it");
  for (const nn::Parameter& parameter : parameters) {
    const auto* group = dynamic_cast<const ParamGroup*>(parameter.owner());
    TESSERA_CHECK_AS(StateError, group == nullptr || group->is_idle(), kWhere,
                     "group {} is in the middle of a forward or backward: open the guard after it",
                     parameter.owner()->group_name());
    TESSERA_CHECK_AS(StateError, !parameter.owner()->has_pending_gradients(), kWhere,
                     "gradients of group {} wait to be reduced: run a backward that reduces, or "
                     "discard_pending_gradients()",
                     parameter.owner()->group_name());
  }
}

// Returns the first rank's flag on all ranks.
bool agreed(bool flag, const MeshRanks& ranks, Device device) {
  const Tensor number = full({1}, flag ? 1 : 0, {.dtype = DType::kF32, .device = device});
  ranks.broadcast(std::span(&number, 1), kWhere);
  return number.item(PlanValue{1}) != 0;
}

}  // namespace

// A parameter's full value, while a guard holds it.
struct FullParameters::Held {
  // A full tensor with memory of its own.
  struct Whole {
    Tensor tensor;  // undefined on ranks that do not hold it
    std::uint64_t version = 0;
    bool is_written() const { return tensor.defined() && tensor.version() != version; }
  };

  Held(nn::Parameter held, const FullParametersOptions& options);
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // Tells the parameter's group, which may contain modules outside the guard that must not run
  // either.
  void note_shown(int change) const {
    if (auto* group = dynamic_cast<ParamGroup*>(parameter.owner())) group->note_shown_whole(change);
  }
  Whole gather(const Tensor& part) const;
  void write_back(Whole& whole, const Tensor& part, DType dtype) const;
  void write_value_back() { write_back(value, parameter.local().tensor(), parameter.dtype()); }
  // Gathers the current gradient. Guards that ask for gradients share it.
  void take_gradient();
  void drop_gradient();
  void write_gradient_back();

  // By Parameter::id(), for this thread: values that inner guards share.
  static std::map<const void*, std::weak_ptr<Held>>& all();

  nn::Parameter parameter;
  bool rank0_only;
  bool offload;
  Device device;
  MeshRanks ranks;
  Tensor value_before;
  bool required_grad;
  nn::ParameterState state_before;
  Whole value;
  Whole gradient;
  std::optional<DType> gradient_dtype;  // unset: there is no gradient
  int gradient_users = 0;
};

std::map<const void*, std::weak_ptr<FullParameters::Held>>& FullParameters::Held::all() {
  thread_local std::map<const void*, std::weak_ptr<Held>> held;
  return held;
}

FullParameters::Held::Held(nn::Parameter held, const FullParametersOptions& options)
    : parameter(std::move(held)),
      rank0_only(options.rank0_only),
      offload(options.offload),
      device(distributed::mesh_of(parameter).device()),
      ranks(distributed::mesh_of(parameter), value_axes(parameter)),
      value_before(parameter.value_leaf().tensor()),
      required_grad(parameter.value_leaf().requires_grad()),
      state_before(parameter.state()),
      value(gather(parameter.local().tensor())) {
  note_shown(1);
  Variable& leaf = parameter.value_leaf();
  leaf.set_requires_grad(false);
  if (value.tensor.defined()) leaf.bind(value.tensor);
  parameter.set_state(value.tensor.defined() ? nn::ParameterState::kFull
                                             : nn::ParameterState::kSharded);
}

FullParameters::Held::~Held() {
  all().erase(parameter.id());
  note_shown(-1);
  Variable& leaf = parameter.value_leaf();
  leaf.set_requires_grad(required_grad);
  const auto ours =
      value.tensor.defined() ? nn::ParameterState::kFull : nn::ParameterState::kSharded;
  // A value that was bound, or a state that was set, after this guard is newer and is kept.
  if (value.tensor.defined()) {
    if (leaf.tensor().storage() != value.tensor.storage()) return;
    leaf.bind(value_before);
  }
  if (parameter.state() == ours) parameter.set_state(state_before);
}

FullParameters::Held::Whole FullParameters::Held::gather(const Tensor& part) const {
  const MemoryCategoryScope category(MemoryCategory::kGathered);
  Whole out{.tensor = gather_value(parameter, to_device(part, device))};
  if (rank0_only && !ranks.is_first()) return {};
  if (offload) out.tensor = to_device(out.tensor, kCpu);
  out.version = out.tensor.version();
  return out;
}

// Ranks without the value receive it temporarily, to copy their shard from it.
void FullParameters::Held::write_back(Whole& whole, const Tensor& part, DType dtype) const {
  bool is_written = whole.is_written();
  if (rank0_only) is_written = agreed(is_written, ranks, device);
  if (!is_written) return;
  Tensor from = whole.tensor;
  if (rank0_only) {
    const MemoryCategoryScope category(MemoryCategory::kGathered);
    from = ranks.is_first() ? contiguous(to_device(whole.tensor, device))
                            : Tensor::empty(parameter.shape(), {.dtype = dtype, .device = device});
    ranks.broadcast(std::span(&from, 1), kWhere);
  }
  // Checked after the collective, since other ranks may have a gradient to write to.
  TESSERA_CHECK_AS(StateError, part.defined(), kWhere,
                   "the gradient of parameter \"{}\" was written in the guard and dropped since: "
                   "keep grad() until the guard closes",
                   parameter.name());
  copy_(part, to_device(part_of_value(parameter, from), part.device()));
  if (whole.tensor.defined()) whole.version = whole.tensor.version();
}

void FullParameters::Held::take_gradient() {
  if (gradient_users++ > 0) return;
  const Tensor part = parameter.grad();
  if (!part.defined()) return;
  gradient_dtype = part.dtype();
  gradient = gather(part);
}

void FullParameters::Held::drop_gradient() {
  if (--gradient_users > 0) return;
  gradient = {};
  gradient_dtype.reset();
}

void FullParameters::Held::write_gradient_back() {
  if (gradient_dtype) write_back(gradient, parameter.grad(), *gradient_dtype);
}

FullParameters::FullParameters(nn::Module& module, const FullParametersOptions& options)
    : options_(options) {
  std::set<const void*> seen;
  std::vector<nn::Parameter> parameters;
  collect(module, options.recurse, seen, parameters);
  check_between_steps(parameters);
  for (const nn::Parameter& parameter : parameters) check_shares(parameter);
  for (const nn::Parameter& parameter : parameters) hold(parameter);
  for (const nn::NamedModule& named : module.named_modules()) {
    if (!has_state(*named.module) || (!options.recurse && named.module != &module)) continue;
    hooks_.push_back(named.module->register_forward_pre_hook(
        [](nn::Module& runs, const nn::VisitVariables&) {
          throw_error<StateError>(
              kWhere,
              "{} runs while a FullParameters guard holds its parameters: close "
              "the guard first",
              runs.type_name());
        },
        {.first = true}));
  }
}

void FullParameters::check_shares(const nn::Parameter& parameter) const {
  parameter.local();  // throws if it is not materialized
  const auto found = Held::all().find(parameter.id());
  const auto outer = found == Held::all().end() ? nullptr : found->second.lock();
  if (!outer) return;
  TESSERA_CHECK_AS(StateError,
                   outer->rank0_only == options_.rank0_only && outer->offload == options_.offload,
                   kWhere,
                   "parameter \"{}\" is held by an outer guard with rank0_only {} and offload {}: "
                   "give the inner one the same",
                   parameter.name(), outer->rank0_only, outer->offload);
}

void FullParameters::hold(const nn::Parameter& parameter) {
  std::weak_ptr<Held>& known = Held::all()[parameter.id()];
  std::shared_ptr<Held> held = known.lock();
  if (!held) known = held = std::make_shared<Held>(parameter, options_);
  by_id_.emplace(parameter.id(), held_.size());
  held_.push_back(held);
  if (options_.gradients) held->take_gradient();
}

FullParameters::~FullParameters() {
  try {
    close();
  } catch (...) {  // a destructor cannot report errors
  }
}

Tensor FullParameters::gradient(const nn::Parameter& parameter) const {
  TESSERA_CHECK_AS(StateError, open_ && options_.gradients, kWhere,
                   "gradient() of \"{}\": the guard {}: open one with .gradients = true",
                   parameter.name(), open_ ? "holds no gradients" : "is closed");
  const auto found = by_id_.find(parameter.id());
  if (found != by_id_.end()) return held_[found->second]->gradient.tensor;
  TESSERA_CHECK(!is_sharded(parameter), kWhere,
                "gradient() of \"{}\": it is none of the {} parameters that the guard holds",
                parameter.name(), held_.size());
  return parameter.grad();
}

void FullParameters::close() {
  if (!std::exchange(open_, false)) return;
  for (HookHandle& hook : hooks_) hook.remove();
  std::exception_ptr first;
  const auto attempt = [&first](const auto& action) {
    try {
      action();
    } catch (...) {  // the other ranks continue with the next parameter
      if (!first) first = std::current_exception();
    }
  };
  for (const std::shared_ptr<Held>& held : held_) {
    if (options_.writeback) {
      attempt([&] { held->write_value_back(); });
      if (options_.gradients) attempt([&] { held->write_gradient_back(); });
    }
    if (options_.gradients) held->drop_gradient();
  }
  held_.clear();
  by_id_.clear();
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera::fsdp
