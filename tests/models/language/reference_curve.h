// The curve that a run has to follow on any number of ranks: its own on one rank.
#pragma once

#include <string>
#include <vector>

#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

// The same run on this rank alone, all of it sharded over itself and nothing recomputed or added
// up. Computed once in a process.
const RunResult& reference_curve(const distributed::World& world, const RunOptions& options);

// What every dtype of a run may differ by: 1e-5 in f32, 1e-12 in f64.
double curve_tolerance(const RunOptions& options);

// Runs, and checks that the curve is the reference's. Answers the worst difference. Collective.
double check_curve(RankTest& t, const RunOptions& options);

std::string name_of(const RunOptions& options);

// Ranks that are processes take long to start and to talk: they do a part of what threads do.
bool on_threads();
// All of tiny_model_names(); on processes gpt.
std::vector<std::string> models_here();

}  // namespace tessera::testing
