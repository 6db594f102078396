// full_state_dict and full_optimizer_state.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/state/batch_norm_warning.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

// Collects a dict of full tensors on the ranks that want it.
class Collector {
 public:
  Collector(const FullStateOptions& options, std::span<const nn::Parameter> parameters)
      : keeps_(
            !options.rank0_only ||
            MeshRanks(options.mesh.defined() ? options.mesh : widest_mesh(parameters)).is_first()),
        offload_(options.offload) {}

  // All ranks call it, because the parameter's ranks gather.
  void add_part(const std::string& name, const nn::Parameter& parameter, const Tensor& part) {
    const MemoryCategoryScope category(MemoryCategory::kOther);
    const Tensor whole = gather_whole(parameter, part);
    if (keeps_) state_.set(name, offload_ ? to_device(whole, kCpu) : whole);
  }
  void add(const std::string& name, const nn::StateValue& value) {
    if (!keeps_) return;
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) return state_.set(name, value);
    const MemoryCategoryScope category(MemoryCategory::kOther);
    state_.set(name,
               offload_ && tensor->device() != kCpu ? to_device(*tensor, kCpu) : clone(*tensor));
  }
  nn::StateDict take() { return std::move(state_); }

 private:
  bool keeps_;
  bool offload_;
  nn::StateDict state_;
};

void warn_on_first_rank(nn::Module& module, const distributed::DeviceMesh& mesh,
                        const std::string& where) {
  if (mesh.defined() && mesh.size() > 1 && MeshRanks(mesh).is_first())
    warn_of_local_batch_norms(module, where);
}

// The entries of a module's state dict.
class LocalState {
 public:
  explicit LocalState(nn::Module& module)
      : parameters_(module.parameters()), entries_(nn::state_dict(module)) {
    // By storage, because hooks may have renamed entries.
    for (const nn::Parameter& parameter : parameters_)
      by_storage_.emplace(parameter.local().tensor().storage().id(), &parameter);
  }

  const std::vector<nn::Parameter>& parameters() const { return parameters_; }
  const nn::StateDict& entries() const { return entries_; }
  // The parameter whose part the value is; null if it is whole.
  const nn::Parameter* parameter_of(const nn::StateValue& value) const {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) return nullptr;
    const auto found = by_storage_.find(tensor->storage().id());
    const bool is_local =
        found != by_storage_.end() && tensor->shape() == found->second->local().shape();
    return is_local ? found->second : nullptr;
  }

 private:
  std::vector<nn::Parameter> parameters_;
  nn::StateDict entries_;
  std::map<std::uint64_t, const nn::Parameter*> by_storage_;
};

// The same names with whole shapes, and no elements.
nn::StateDict plan_of(const LocalState& local) {
  nn::StateDict plan;
  for (const auto& [name, value] : local.entries()) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) {
      plan.set(name, value);
      continue;
    }
    const nn::Parameter* parameter = local.parameter_of(value);
    const Shape& shape = parameter == nullptr ? tensor->shape() : parameter->spec().global_shape;
    plan.set(name, Tensor::empty(shape, {.dtype = tensor->dtype(), .device = kNull}));
  }
  return plan;
}

}  // namespace

nn::StateDict full_state_dict(nn::Module& module, const FullStateOptions& options) {
  const LocalState local(module);
  warn_on_first_rank(module,
                     options.mesh.defined() ? options.mesh : widest_mesh(local.parameters()),
                     "full_state_dict");
  Collector collector(options, local.parameters());
  for (const auto& [name, value] : local.entries()) {
    if (const nn::Parameter* parameter = local.parameter_of(value))
      collector.add_part(name, *parameter, std::get<Tensor>(value));
    else
      collector.add(name, value);
  }
  return collector.take();
}

void save_full_state(const std::string& path, nn::Module& module,
                     const distributed::DeviceMesh& mesh) {
  const LocalState local(module);
  const distributed::DeviceMesh all = mesh.defined() ? mesh : widest_mesh(local.parameters());
  warn_on_first_rank(module, all, "save_full_state");
  const MeshRanks ranks(all);
  const nn::StateDict plan = plan_of(local);
  const std::vector<std::string> order = nn::saved_order(plan);
  std::size_t gathered = 0;
  const auto whole = [&](const std::string& name) {
    ++gathered;
    const MemoryCategoryScope category(MemoryCategory::kOther);
    const nn::StateValue& value = *local.entries().find(name);
    const nn::Parameter* parameter = local.parameter_of(value);
    const Tensor& mine = std::get<Tensor>(value);
    return parameter == nullptr ? mine : gather_whole(*parameter, mine);
  };
  std::string error;
  if (ranks.is_first())
    error = distributed::error_of([&] { nn::save_state_from(path, plan, whole); });
  // The other ranks gather in the same order, also what a file that failed did not get.
  while (gathered < order.size()) whole(order[gathered]);
  distributed::throw_error_of(ranks.broadcast_texts({error}).front());
}

nn::StateDict full_optimizer_state(const nn::optim::Optimizer& optimizer,
                                   const FullStateOptions& options) {
  const std::vector<nn::Parameter>& parameters = optimizer.parameters();
  const nn::StateDict local = optimizer.state_dict();
  std::map<std::string, const nn::Parameter*> by_prefix;
  for (const nn::Parameter& parameter : parameters) {
    by_prefix.emplace("state." + parameter.name() + ".", &parameter);
  }
  Collector collector(options, parameters);
  for (const auto& [name, value] : local) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) {
      collector.add(name, value);
    } else {
      collector.add_part(name, *by_prefix.at(name.substr(0, name.rfind('.') + 1)), *tensor);
    }
  }
  return collector.take();
}

}  // namespace tessera::fsdp
