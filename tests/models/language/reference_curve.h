// The loss curve that a run must have on any number of ranks: its own on one rank.
#pragma once

#include <string>
#include <vector>

#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

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
