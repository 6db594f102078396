#pragma once

// Runs a tiny language model through Trainer and LanguageTask; returns its metrics.

#include <string>
#include <vector>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/training/metrics.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/tests/models/language/tiny_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

struct RunOptions {
  std::string model = "gpt";
  std::string precision = "f64";
  bool adamw = false;                                  // false: SGD with momentum
  models::ShardMode shard = models::ShardMode::kFull;  // hybrids have two replicas
  models::RecomputeMode recompute = models::RecomputeMode::kNone;
  int tensor_ranks = 1;  // tensor-parallel ranks
  int expert_ranks = 1;  // for moe: ranks that share the experts
  std::int64_t batch = 5;
  std::int64_t micro_batch = 0;
  double max_grad_norm = 0;
  int steps = 10;
  int prefetch = 0;
  double dropout = 0.1;
  bool cuda_graphs = false;
};

struct RunResult {
  std::vector<models::StepMetrics> steps;
  models::EvalMetrics evaluated;
  int recomputed_modules = 0;
  std::int64_t replayed = 0;  // number of replayed steps
};

std::unique_ptr<nn::optim::Optimizer> run_optimizer(nn::Module& module, bool adamw);

// Collective.
RunResult run_language(distributed::World& world, const RunOptions& options);

// This rank as a world of one, for the reference curve.
distributed::World alone(const distributed::World& world);

// The worst relative difference of losses, gradient norms and the evaluation's loss.
double worst_difference(const RunResult& run, const RunResult& reference);

// The loss curve that a run must have on any number of ranks: its own on one rank.

// The same run on this rank alone, as a world of one, without recomputation or micro-batches.
// Computed once per process.
const RunResult& reference_curve(const distributed::World& world, const RunOptions& options);

// The allowed relative difference between runs: 1e-5 in f32, 1e-12 in f64.
double curve_tolerance(const RunOptions& options);

// Runs, and checks that the curve is that of the reference. Returns the worst difference.
// Collective.
double check_curve(RankTest& t, const RunOptions& options);

std::string name_of(const RunOptions& options);

// Rank processes start and communicate slowly: they run a part of the cases that threads run.
bool on_threads();
// All of tiny_model_names(); only gpt if ranks are processes.
std::vector<std::string> models_here();

}  // namespace tessera::testing
