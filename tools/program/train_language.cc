// Training of language models on text.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tessera/models/runs/language_run.h"
#include "tessera/models/runs/text_data.h"
#include "tessera/models/runs/words.h"
#include "tessera/models/training/language_task.h"
#include "tessera/models/training/task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tools/program/flops.h"
#include "tessera/tools/program/options/texts.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

using distributed::World;
using models::data::PackedSequences;

std::unique_ptr<nn::optim::Optimizer> make_optimizer(const TrainOptions& options,
                                                     const nn::Module& model) {
  // Biases and norms have no weight decay: they are few and may have to be large.
  const auto [matrices, others] = nn::optim::group_parameters(model, nn::optim::min_dims(2));
  if (options.optimizer == "sgd") {
    nn::optim::SgdOptions sgd{.lr = options.lr, .momentum = options.beta1};
    nn::optim::SgdOptions decaying = sgd;
    decaying.weight_decay = options.weight_decay;
    return std::make_unique<nn::optim::SGD>(std::vector<nn::optim::SGD::Group>{
        {.parameters = matrices, .options = decaying}, {.parameters = others, .options = sgd}});
  }
  nn::optim::AdamWOptions adamw{.lr = options.lr, .betas = {options.beta1, options.beta2}};
  adamw.weight_decay = 0;
  nn::optim::AdamWOptions decaying = adamw;
  decaying.weight_decay = options.weight_decay;
  return std::make_unique<nn::optim::AdamW>(std::vector<nn::optim::AdamW::Group>{
      {.parameters = matrices, .options = decaying}, {.parameters = others, .options = adamw}});
}

models::TrainerOptions trainer_options(const TrainOptions& options, const LanguageRun& run,
                                       std::int64_t steps) {
  return {.schedule = nn::optim::warm_up_cosine({.warm_up = std::min(options.warmup, steps - 1),
                                                 .steps = steps,
                                                 .to = options.min_lr / options.lr,
                                                 .midpoints = true}),
          .seed = options.seed,
          .max_grad_norm = options.clip_grad,
          .micro_batch = options.micro_batch,
          .loss_scale = run.precision.needs_loss_scale(),
          .cuda_graphs = options.cuda_graphs,
          .data_mesh = run.meshes.data};
}

// The peak of all ranks together, measured at the same time. Collective.
double peak_of_all_ranks(World& world, const models::Precision& precision) {
  const double mine = measure_peak_flops(precision.compute, world.device());
  const std::vector<double> all = models::gather_figures(*world.group(), {&mine, 1});
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// Counts of the unsharded model.
struct NetFigures {
  std::int64_t parameters = 0;
  double flops_per_token = 0;
};
NetFigures figures_of(const TrainOptions& options, std::int64_t vocab_size) {
  const std::unique_ptr<LanguageNet> net = build_net(options, vocab_size);
  return {.parameters = count_parameters(net->module()),
          .flops_per_token = training_flops_per_token(
              {.matmul_parameters = net->matmul_parameters(),
               .layers = static_cast<std::int64_t>(options.sizes.at("layers")),
               .dim = static_cast<std::int64_t>(options.sizes.at("dim")),
               .length = options.seq_len})};
}

std::string ranks_text(const TrainOptions& options) {
  return fmt::format("{} rank{} as {}, mesh {}, sharding {}", options.world_size(),
                     options.world_size() == 1 ? "" : "s", options.kind_of_ranks(),
                     plan_mesh(options).str(), options.shard);
}

void greet(RunReport& report, const TrainOptions& options, const TextData& data,
           const NetFigures& figures, std::int64_t steps) {
  std::vector<std::string> sizes;
  for (const SizeOption& size : language_family(options.model).sizes())
    sizes.push_back(fmt::format("{} {}", size.name, options.sizes.at(size.name)));
  std::string text =
      fmt::format("model      {} {}: {} parameters ({})\n", options.model, options.preset,
                  with_commas(figures.parameters), joined(sizes, ", "));
  text += fmt::format("precision  {}: {}\n", options.precision,
                      describe(models::precision_named(options.precision)));
  text +=
      fmt::format("data       {}: {} documents, {}; {} tokens to learn from, {} to validate\n",
                  printable(options.data), with_commas(data.documents()),
                  short_bytes(static_cast<double>(data.bytes())),
                  with_commas(data.text.train->size()), with_commas(data.text.validation->size()));
  text += fmt::format("tokenizer  {}: {} tokens, {:.2f} bytes each\n", printable(options.tokenizer),
                      with_commas(data.tokenizer->vocab_size()),
                      static_cast<double>(data.bytes()) / static_cast<double>(data.tokens()));
  text += fmt::format("training   {} steps of {} x {} tokens, {}, {}\n", with_commas(steps),
                      options.batch, options.seq_len, options.optimizer, ranks_text(options));
  if (options.warmup >= steps)
    text += fmt::format(
        "note       the run is shorter than its warm-up of {} steps, which ends at its last\n",
        options.warmup);
  report.print(text);
}

void finish(World& world, const TrainOptions& options, const TextData& data, LanguageRun& run,
            const NetFigures& figures, const TrainingEnd& end, RunReport* report) {
  save_model(world, options, run.net->module());
  std::string text = options.sample_prompt;
  if (options.sample_tokens > 0 && end.signal == 0) {
    text += generate_text(run.net->language_model(), *data.tokenizer,
                          {.prompt = options.sample_prompt,
                           .max_tokens = options.sample_tokens,
                           .seed = options.seed});
    if (report != nullptr) report->sample(text);
  }
  if (report == nullptr) return;
  JsonMembers summary = {{"parameters", figures.parameters},
                         {"ranks", ranks_text(options)},
                         {"precision", describe(run.precision)},
                         {"training tokens", data.text.train->size()},
                         {"validation tokens", data.text.validation->size()},
                         {"bytes of text", data.bytes()}};
  if (end.signal != 0) summary.emplace_back("interrupted", fmt::format("after step {}", end.steps));
  report->summary(summary);
}

void run_rank(World& world, const TrainOptions& options, const TextData& data) {
  const std::int64_t vocab_size = data.tokenizer->vocab_size();
  LanguageRun run = build_on_ranks(world, options, vocab_size);
  nn::initialize(run.net->module(), {.seed = options.seed, .device = world.device()});
  const PackedSequences train(data.text.train, options.seq_len);
  const PackedSequences validation(data.text.validation, options.seq_len);
  models::LanguageTask task(world, run.net->language_model(), train, validation, *data.tokenizer,
                            {.batch = options.batch,
                             .seed = options.seed,
                             .data_mesh = run.meshes.data,
                             .micro_batch = options.micro_batch});
  const auto optimizer = make_optimizer(options, run.net->module());
  const std::int64_t steps = total_steps(options, task);
  models::Trainer trainer(world, task, *optimizer, trainer_options(options, run, steps));
  Checkpoints checkpoints(world, trainer, options);
  const ResumedFrom& from = checkpoints.resume();

  const NetFigures figures = figures_of(options, vocab_size);
  std::optional<RunReport> report;
  if (world.rank() == 0) {
    report.emplace(
        world, options, run.precision.storage,
        ProgressOptions{
            .steps = steps, .done = from.step, .flops_per_item = figures.flops_per_token},
        from.metrics_end());
    greet(*report, options, data, figures, steps);
  }
  RunReport* shown = report ? &*report : nullptr;
  if (!goes_on(from, steps, shown)) return;
  const TrainingEnd end = run_training(world, trainer, checkpoints, options, steps, shown,
                                       [&] { return peak_of_all_ranks(world, run.precision); });
  if (end.steps == 0) return;  // the folder may still hold an earlier run
  finish(world, options, data, run, figures, end, shown);
}

}  // namespace

RankBody language_body(const TrainOptions& options) {
  return [options,
          text = std::make_shared<SharedText>(options.data, options.tokenizer)](World& world) {
    world.heed_stop_signals();
    run_rank(world, options, text->get());
  };
}

}  // namespace tessera::tools
