#include "tessera/tests/models/language/reference_curve.h"

#include <map>
#include <mutex>

namespace tessera::testing {
namespace {

// Resets options that must not change the result to those of a run on one rank.
RunOptions on_one_rank(RunOptions options) {
  const RunOptions defaults;
  options.shard = defaults.shard;
  options.recompute = defaults.recompute;
  options.tensor_ranks = defaults.tensor_ranks;
  options.expert_ranks = defaults.expert_ranks;
  options.micro_batch = defaults.micro_batch;
  options.prefetch = defaults.prefetch;
  return options;
}

}  // namespace

std::string name_of(const RunOptions& options) {
  return fmt::format(
      "{} {} {} {} recompute {} tensor {} experts {} batch {} micro {} norm {} steps {}",
      options.model, options.precision, options.adamw ? "AdamW" : "SGD",
      models::shard_mode_names()[static_cast<std::size_t>(options.shard)],
      models::recompute_mode_names()[static_cast<std::size_t>(options.recompute)],
      options.tensor_ranks, options.expert_ranks, options.batch, options.micro_batch,
      options.max_grad_norm, options.steps);
}

const RunResult& reference_curve(const distributed::World& world, const RunOptions& options) {
  static std::mutex mutex;
  static std::map<std::string, RunResult> curves;
  const std::lock_guard lock(mutex);  // ranks may be threads: the first computes, the others wait
  const RunOptions single = on_one_rank(options);
  const std::string name = name_of(single);
  auto found = curves.find(name);
  if (found == curves.end()) {
    distributed::World one = alone(world);
    found = curves.emplace(name, run_language(one, single)).first;
  }
  return found->second;
}

double curve_tolerance(const RunOptions& options) {
  return options.precision == "f64" ? 1e-12 : 1e-5;
}

double check_curve(RankTest& t, const RunOptions& options) {
  const RankTest::NamedCase named(t, name_of(options));
  const RunResult& reference = reference_curve(t.world(), options);
  const double worst = worst_difference(run_language(t.world(), options), reference);
  t.check(worst <= curve_tolerance(options), "the curve is off by {:.2g}", worst);
  return worst;
}

bool on_threads() { return test_transport() == "local"; }

std::vector<std::string> models_here() {
  return on_threads() ? tiny_model_names() : std::vector<std::string>{"gpt"};
}

}  // namespace tessera::testing
