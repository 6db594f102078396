// full_state_dict and full_optimizer_state.
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "tessera/fsdp/state/state.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/state/module_state.h"
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

// Once in a process, on the first rank.
void warn_of_local_batch_norms(nn::Module& module, const distributed::DeviceMesh& mesh) {
  if (!mesh.defined() || mesh.size() == 1 || !MeshRanks(mesh).is_first()) return;
  const std::string warning = local_batch_norm_warning(module);
  static std::once_flag warned;
  if (!warning.empty())
    std::call_once(warned, [&] { fmt::print(stderr, "warning: {}\n", warning); });
}

}  // namespace

std::string local_batch_norm_warning(nn::Module& module) {
  const std::vector<std::string> norms = nn::batch_norms_with_local_batches(module);
  if (norms.empty()) return {};
  return error_text("full_state_dict",
                    fmt::format("{} batch norm(s), \"{}\" the first, trained with the batches of "
                                "each rank alone: the running statistics that are saved are rank "
                                "0's, and other ranks evaluate with others; call "
                                "nn::synchronize_batch_norms(model, mesh) before training",
                                norms.size(), norms.front()));
}

nn::StateDict full_state_dict(nn::Module& module, const FullStateOptions& options) {
  const std::vector<nn::Parameter> parameters = module.parameters();
  warn_of_local_batch_norms(module,
                            options.mesh.defined() ? options.mesh : widest_mesh(parameters));
  const nn::StateDict local = nn::state_dict(module);
  // By storage, because hooks may have renamed entries.
  std::map<std::uint64_t, const nn::Parameter*> by_storage;
  for (const nn::Parameter& parameter : parameters) {
    by_storage.emplace(parameter.local().tensor().storage().id(), &parameter);
  }
  Collector collector(options, parameters);
  for (const auto& [name, value] : local) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    const auto found =
        tensor == nullptr ? by_storage.end() : by_storage.find(tensor->storage().id());
    const bool is_local =
        found != by_storage.end() && tensor->shape() == found->second->local().shape();
    if (is_local) {
      collector.add_part(name, *found->second, *tensor);
    } else {
      collector.add(name, value);
    }
  }
  return collector.take();
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
