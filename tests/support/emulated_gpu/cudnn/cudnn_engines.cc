#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_engines.h"

#include <atomic>
#include <cstring>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_arithmetic.h"

namespace tessera::emulated::cudnn {
namespace {

constexpr std::size_t kPlainWorkspace = 512;

bool uses_f32_operands(const Graph& graph) {
  for (const auto& [id, tensor] : graph.tensors) {
    if (tensor.type == CUDNN_DATA_FLOAT && !tensor.is_virtual && !tensor.by_value) return true;
  }
  return false;
}

Manner manner_of(const Plan& plan) {
  static std::atomic<unsigned> runs{0};
  Manner manner;
  manner.tf32 = plan.engine == kTensor && !plan.graph->is_half();
  manner.backwards = plan.engine == kShuffled && runs.fetch_add(1) % 2 == 1;
  return manner;
}

}  // namespace

std::vector<Config> configs_for(const Graph& graph, cudnnBackendHeurMode_t mode) {
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {{kPlain}};
  std::vector<Config> all = {{kShuffled}, {kPicky}};
  if (!graph.is_double()) all.push_back({kTensor});
  all.insert(mode == CUDNN_HEUR_MODE_B ? all.begin() : all.end(),
             {kPlain, mode == CUDNN_HEUR_MODE_B ? 2 : 1});
  return all;
}

std::vector<cudnnBackendNumericalNote_t> notes_of(int engine, const Graph& graph) {
  std::vector<cudnnBackendNumericalNote_t> notes;
  if (engine == kShuffled) notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  if (engine != kTensor) return notes;
  notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (!graph.is_half() && uses_f32_operands(graph)) {
    notes.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  }
  return notes;
}

MadePlan make_plan(const std::shared_ptr<const Graph>& graph, const Config& config) {
  if (config.engine == kPicky) {
    return {nullptr, {CUDNN_STATUS_NOT_SUPPORTED, "this engine supports no graph"}};
  }
  if (config.engine == kTensor && graph->is_double()) {
    return {nullptr, {CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "tensor cores do not take f64"}};
  }
  const std::size_t workspace =
      config.engine == kPlain ? static_cast<std::size_t>(config.workspaces) * kPlainWorkspace : 0;
  return {std::make_shared<Plan>(Plan{graph, config.engine, workspace}), {}};
}

void run(const Execution& execution) {
  const Plan& plan = *execution.plan;
  const Graph& graph = *plan.graph;
  if (plan.workspace != 0) std::memset(execution.workspace, 0xff, plan.workspace);
  const Manner manner = manner_of(plan);
  Places places = execution.places;
  std::map<std::int64_t, std::vector<char>> owned = execution.by_value;
  for (auto& [id, bytes] : owned) places[id] = bytes.data();
  for (const Operation& one : graph.operations) {
    const Tensor& output = graph.tensors.at(one.output());
    const bool is_view = one.type() == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR &&
                         graph.of(one, Role::kX).type == output.type;
    if (is_view) {
      places[output.id] = places.at(one.tensors.at(Role::kX));
      continue;
    }
    if (output.is_virtual) {
      auto& bytes = owned[output.id];
      bytes.assign(output.bytes(), static_cast<char>(0xff));
      places[output.id] = bytes.data();
    }
    run_operation(graph, one, places, manner);
  }
}

}  // namespace tessera::emulated::cudnn
