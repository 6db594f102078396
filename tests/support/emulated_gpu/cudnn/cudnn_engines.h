#pragma once

/// The engines of the emulated cuDNN and the plans that they make. All compute the same; they
/// differ in what callers have to look at before they choose:
///
///   shuffled  its notes say NONDETERMINISTIC: every other run sums from last to first
///   picky     its plans cannot be finalized (CUDNN_STATUS_NOT_SUPPORTED)
///   tensor    tensor cores; f32 operands are rounded to TF32, which its notes say
///   plain     no notes; has a knob: how many workspaces of 512 bytes it needs
///
/// Heuristics of modes A and INSTANT give them in this order (no tensor cores for f64), FALLBACK
/// gives plain alone; all with one workspace for plain. B gives plain with two, then the others.

#include <cudnn.h>

#include <memory>
#include <vector>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_graph.h"

namespace tessera::emulated::cudnn {

enum EngineIndex : int { kShuffled = 0, kPicky = 1, kTensor = 2, kPlain = 3, kEngines = 4 };

struct Plan {
  std::shared_ptr<const Graph> graph;
  int engine = kPlain;
  std::size_t workspace = 0;  // bytes
};

/// An engine and the choice for plain's knob.
struct Config {
  int engine = -1;
  std::int64_t workspaces = 1;
};
std::vector<Config> configs_for(const Graph& graph, cudnnBackendHeurMode_t mode);
std::vector<cudnnBackendNumericalNote_t> notes_of(int engine, const Graph& graph);

struct MadePlan {
  std::shared_ptr<const Plan> plan;
  Refused refused;
};
MadePlan make_plan(const std::shared_ptr<const Graph>& graph, const Config& config);

/// The places of the caller's tensors, copies of those by value, and the workspace.
struct Execution {
  std::shared_ptr<const Plan> plan;
  std::map<std::int64_t, char*> places;
  std::map<std::int64_t, std::vector<char>> by_value;
  void* workspace = nullptr;
};
/// Does all operations; may be called often.
void run(const Execution& execution);

}  // namespace tessera::emulated::cudnn
