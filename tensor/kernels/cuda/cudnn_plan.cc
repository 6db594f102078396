// From a graph of operations to the plan that executes it.

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/tensor/kernels/cuda/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn_meaning.h"

namespace tessera::cuda {
namespace {

struct Notes {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  std::int64_t count = 0;

  bool have(cudnnBackendNumericalNote_t note) const {
    return std::find(notes.begin(), notes.begin() + count, note) != notes.begin() + count;
  }
};

Notes notes_of(const CudnnDescriptor& config, const char* where) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, where);
  cudnnBackendDescriptor_t slot = engine.get();
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &slot),
              where, "cudnnBackendGetAttribute");
  Notes out;
  check_cudnn(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                       &out.count, out.notes.data()),
              where, "cudnnBackendGetAttribute");
  return out;
}

bool allowed(const Notes& notes, const CudnnNumerics& numerics) {
  // Sums are always of the compute type.
  for (const auto note :
       {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION})
    if (notes.have(note)) return false;
  if (numerics.exact_sums) {
    for (const auto note : {CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
                            CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13})
      if (notes.have(note)) return false;
  }
  return numerics.tensor_cores || (!notes.have(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
                                   !notes.have(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
}

// The configurations that one kind of heuristics proposes, best first; none where it knows none.
std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& graph,
                                            cudnnBackendHeurMode_t mode,
                                            const CudnnDescriptor* properties, const char* where) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, where);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (properties != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties);
  if (!heuristics.try_finalize()) return {};
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              where, "cudnnBackendGetAttribute");
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> slots;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, where);
    slots.push_back(configs.back().get());
  }
  check_cudnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, slots.data()),
              where, "cudnnBackendGetAttribute");
  while (static_cast<std::int64_t>(configs.size()) > count) configs.pop_back();
  return configs;
}

std::optional<CudnnDescriptor> described_gpu(const CudnnTarget& target, const char* where) {
  if (target.properties.empty()) return {};
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, where);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 static_cast<std::int64_t>(target.properties.size()), target.properties.data());
  properties.finalize();
  return properties;
}

}  // namespace

std::unique_ptr<CudnnPlan> CudnnGraph::plan(const CudnnTarget& target,
                                            const CudnnNumerics& numerics) {
  const std::optional<CudnnDescriptor> properties = described_gpu(target, where_);
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, where_);
  if (!properties)
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(operations.size()), operations.data());
  if (!graph.try_finalize()) return nullptr;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (CudnnDescriptor& config :
         configurations(graph, mode, properties ? &*properties : nullptr, where_)) {
      if (!allowed(notes_of(config, where_), numerics)) continue;
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, where_);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (!plan.try_build()) continue;
      std::vector<CudnnDescriptor> parts = std::move(operations_);
      for (std::vector<CudnnDescriptor>* more : {&parts_, &tensors_}) {
        std::move(more->begin(), more->end(), std::back_inserter(parts));
        more->clear();
      }
      parts.push_back(std::move(graph));
      parts.push_back(std::move(config));
      return std::unique_ptr<CudnnPlan>(new CudnnPlan(std::move(plan), std::move(parts), where_));
    }
  }
  return nullptr;
}

CudnnPlan::CudnnPlan(CudnnDescriptor plan, std::vector<CudnnDescriptor> parts, const char* where)
    : plan_(std::move(plan)), parts_(std::move(parts)), where_(where) {
  std::int64_t bytes = 0, count = 0;
  check_cudnn(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &bytes),
              where_, "cudnnBackendGetAttribute");
  workspace_bytes_ = static_cast<std::size_t>(bytes);
}

void CudnnPlan::execute(cudnnHandle_t handle, std::span<const Binding> bindings, void* scratch) {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const auto& [id, address] : bindings) {
    ids.push_back(id + 1);
    addresses.push_back(const_cast<void*>(address));
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, where_);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
  pack.finalize();
  // Not all of cuDNN's engines take two executions of one plan at a time.
  const std::lock_guard lock(executing_);
  check_cudnn(cudnnBackendExecute(handle, plan_.get(), pack.get()), where_, "cudnnBackendExecute");
}

}  // namespace tessera::cuda
