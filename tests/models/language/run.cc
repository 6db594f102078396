#include "tessera/tests/models/language/run.h"

#include <cmath>
#include <map>
#include <mutex>

#include "tessera/models/training/language_task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/models/language/tiny_model.h"

namespace tessera::testing {
namespace {

using models::data::PackedSequences;

// In batches of 5 the last batch of an epoch has 3: the last of four ranks has no row there.
constexpr std::int64_t kSequences = 23;
constexpr std::int64_t kValidationSequences = 4;

double relative(double a, double b) { return std::abs(a - b) / std::abs(b); }

// The meshes of a run.
struct RunMeshes {
  distributed::DeviceMesh shard;        // for parallelize
  distributed::DeviceMesh data = {};    // one axis: ranks that share the batch; undefined: all
  distributed::DeviceMesh tensor = {};  // undefined: no tensor parallelism
  distributed::DeviceMesh expert = {};  // undefined: every rank has all experts
};

RunMeshes run_meshes(const distributed::World& world, const RunOptions& options) {
  const auto two_axes = [&](const std::vector<std::string>& axes, int last) {
    return distributed::DeviceMesh(axes, {world.size() / last, last}, world.group(),
                                   world.device());
  };
  if (options.tensor_ranks > 1) {
    const distributed::DeviceMesh mesh = two_axes({"data", "tensor"}, options.tensor_ranks);
    return {.shard = mesh["data"], .data = mesh["data"], .tensor = mesh["tensor"]};
  }
  if (options.expert_ranks > 1) {
    const distributed::DeviceMesh mesh = two_axes({"copies", "experts"}, options.expert_ranks);
    return {.shard = mesh.flatten("data"), .expert = mesh};
  }
  if (options.shard != models::ShardMode::kHybrid) return {.shard = world.mesh()};
  const bool even = world.size() % 2 == 0;
  return {.shard = distributed::hybrid_mesh(world, even ? world.size() / 2 : world.size())};
}

}  // namespace

std::unique_ptr<nn::optim::Optimizer> run_optimizer(nn::Module& module, bool adamw) {
  if (adamw) {
    return std::make_unique<nn::optim::AdamW>(
        module.parameters(), nn::optim::AdamWOptions{.lr = 0.003, .weight_decay = 0.1});
  }
  return std::make_unique<nn::optim::SGD>(
      module.parameters(),
      nn::optim::SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
}

RunResult run_language(distributed::World& world, const RunOptions& options) {
  const RunMeshes meshes = run_meshes(world, options);
  const models::Precision precision = models::precision_named(options.precision);
  const auto model =
      tiny_model(options.model, {.dtype = precision.storage, .dropout = options.dropout});
  model->parallelize({.mesh = meshes.shard,
                      .shard = options.shard,
                      .precision = precision,
                      .recompute = options.recompute,
                      .tensor_mesh = meshes.tensor,
                      .loss_parallel = true,
                      .expert_mesh = meshes.expert});
  nn::initialize(model->module(), {.seed = 3, .device = world.device()});
  const auto optimizer = run_optimizer(model->module(), options.adamw);

  const PackedSequences train(letter_stream(kSequences * kTinyLength + 1, 1), kTinyLength);
  const PackedSequences validation(letter_stream(kValidationSequences * kTinyLength + 1, 2),
                                   kTinyLength);
  const LetterTokenizer tokenizer;
  models::LanguageTask task(
      world, model->language_model(), train, validation, tokenizer,
      {.batch = options.batch, .seed = 5, .data_mesh = meshes.data, .prefetch = options.prefetch});
  models::Trainer trainer(world, task, *optimizer,
                          {.seed = 7,
                           .max_grad_norm = options.max_grad_norm,
                           .micro_batch = options.micro_batch,
                           .loss_scale = precision.needs_loss_scale(),
                           .cuda_graphs = options.cuda_graphs,
                           .data_mesh = meshes.data});
  RunResult result;
  for (const nn::NamedModule& named : model->module().named_modules())
    result.recomputed_modules += named.module->is_recomputed();
  for (int step = 0; step < options.steps; ++step) result.steps.push_back(trainer.step());
  result.replayed = trainer.steps_replayed();
  result.evaluated = trainer.evaluate();
  return result;
}

distributed::World alone(const distributed::World& world) {
  return distributed::World(world.group()->subgroup({world.rank()}), world.device(),
                            world.context());
}

double worst_difference(const RunResult& run, const RunResult& reference) {
  double worst = relative(run.evaluated.loss, reference.evaluated.loss);
  const auto take = [&](double difference) {
    // A NaN is the worst difference, and stays.
    if (!(difference <= worst)) worst = difference;
  };
  for (std::size_t i = 0; i < reference.steps.size(); ++i) {
    take(relative(run.steps.at(i).loss, reference.steps[i].loss));
    take(relative(run.steps.at(i).grad_norm, reference.steps[i].grad_norm));
  }
  return worst;
}

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
