// From a graph of operations to the plan that executes it.

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"

namespace tessera::cuda {
namespace {

struct Notes {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  std::int64_t count = 0;

  bool have(cudnnBackendNumericalNote_t note) const {
    return std::find(notes.begin(), notes.begin() + count, note) != notes.begin() + count;
  }
};

CudnnDescriptor engine_of(const CudnnDescriptor& config) {
  return std::move(
      config.held(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
}

Notes notes_of(const CudnnDescriptor& config) {
  Notes out;
  out.count = engine_of(config).get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, out.notes.data());
  return out;
}

std::string name_of(const CudnnDescriptor& config) {
  std::int64_t engine = 0;
  engine_of(config).get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine);
  std::string name = "engine " + std::to_string(engine);
  for (const CudnnDescriptor& choice :
       config.held(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                   CUDNN_KNOB_TYPE_COUNTS)) {
    cudnnBackendKnobType_t knob{};
    std::int64_t value = 0;
    choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
    choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    name += ", knob " + std::to_string(knob) + "=" + std::to_string(value);
  }
  return name;
}

bool allowed(const Notes& notes, const CudnnNumerics& numerics) {
  // Sums are always in the compute type.
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

std::optional<CudnnDescriptor> described_gpu(const CudnnTarget& target, const char* where) {
  if (target.properties.empty()) return {};
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, where);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 static_cast<std::int64_t>(target.properties.size()), target.properties.data());
  properties.finalize();
  return properties;
}

}  // namespace

struct CudnnOperations {
  std::optional<CudnnDescriptor> gpu;  // if the GPU is described
  CudnnDescriptor graph;
  std::vector<CudnnDescriptor> parts;
};

namespace {

// The configurations that one mode of the heuristics proposes, best first; empty if it does not
// apply.
std::vector<CudnnDescriptor> configurations(const CudnnOperations& operations,
                                            cudnnBackendHeurMode_t mode, const char* where) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, where);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations.graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (operations.gpu) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *operations.gpu);
  if (!heuristics.try_finalize()) return {};
  const std::int64_t count =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  return heuristics.held(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

}  // namespace

std::shared_ptr<const CudnnOperations> CudnnGraph::finish(const CudnnTarget& target) {
  CudnnOperations all{.gpu = described_gpu(target, where_),
                      .graph = CudnnDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, where_),
                      .parts = {}};
  if (!all.gpu)
    all.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  all.graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                static_cast<std::int64_t>(operations.size()), operations.data());
  const bool taken = all.graph.try_finalize();
  for (std::vector<CudnnDescriptor>* some : {&operations_, &parts_, &tensors_}) {
    std::move(some->begin(), some->end(), std::back_inserter(all.parts));
    some->clear();
  }
  return taken ? std::make_shared<const CudnnOperations>(std::move(all)) : nullptr;
}

std::unique_ptr<CudnnPlan> CudnnGraph::plan(const CudnnTarget& target,
                                            const CudnnNumerics& numerics) {
  const auto operations = finish(target);
  if (operations == nullptr) return nullptr;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (CudnnDescriptor& config : configurations(*operations, mode, where_)) {
      if (!allowed(notes_of(config), numerics)) continue;
      if (auto plan = CudnnPlan::build(operations, std::move(config), where_)) return plan;
    }
  }
  return nullptr;
}

std::vector<std::unique_ptr<CudnnPlan>> CudnnGraph::offered_plans(const CudnnTarget& target) {
  std::vector<std::unique_ptr<CudnnPlan>> plans;
  const auto operations = finish(target);
  if (operations == nullptr) return plans;
  std::set<std::string> seen;
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_INSTANT}) {
    for (CudnnDescriptor& config : configurations(*operations, mode, where_)) {
      if (!seen.insert(name_of(config)).second) continue;
      if (auto plan = CudnnPlan::build(operations, std::move(config), where_))
        plans.push_back(std::move(plan));
    }
  }
  return plans;
}

std::unique_ptr<CudnnPlan> CudnnPlan::build(Operations operations, CudnnDescriptor config,
                                            const char* where) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, where);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!plan.try_build()) return nullptr;
  return std::unique_ptr<CudnnPlan>(
      new CudnnPlan(std::move(operations), std::move(config), std::move(plan), where));
}

CudnnPlan::CudnnPlan(Operations operations, CudnnDescriptor config, CudnnDescriptor plan,
                     const char* where)
    : operations_(std::move(operations)),
      config_(std::move(config)),
      plan_(std::move(plan)),
      where_(where) {
  std::int64_t bytes = 0;
  plan_.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
  workspace_bytes_ = static_cast<std::size_t>(bytes);
}

std::string CudnnPlan::name() const { return name_of(config_); }

CudnnDescriptor CudnnPlan::bind(std::span<const Binding> bindings, void* scratch) const {
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
  return pack;
}

void CudnnPlan::execute(cudnnHandle_t handle, const CudnnDescriptor& bound) {
  // Some of cuDNN's engines do not allow two executions of one plan at a time.
  const std::lock_guard lock(executing_);
  check_cudnn(cudnnBackendExecute(handle, plan_.get(), bound.get()), where_, "cudnnBackendExecute");
}

}  // namespace tessera::cuda
