#include "tessera/tools/program/eval_command.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "tessera/distributed/launch/launch.h"
#include "tessera/models/training/first_bad_tensor.h"
#include "tessera/models/training/language_task.h"
#include "tessera/tensor/check.h"
#include "tessera/tools/program/options/cannot_start.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/saved_run.h"
#include "tessera/tools/program/text_data.h"

namespace tessera::tools {
namespace {

// All ranks have the same loss. Collective if it is not finite.
void check_finite(distributed::World& world, const SavedRun& saved, LanguageNet& net,
                  models::LanguageTask& task, const models::EvalMetrics& metrics) {
  if (std::isfinite(metrics.loss)) return;
  const std::string first = models::first_bad_tensor(
      net.module(), [&] { task.evaluate(); }, *world.group());
  throw_error<StateError>("eval",
                          "the loss is {}: {}; the weights of {} cannot be used, train again with "
                          "a lower --lr",
                          std::abs(metrics.loss), first, saved.folder);
}

}  // namespace

void fill_table(OptionTable& table, EvalOptions& options) {
  table.group("Options");
  table.path("run", options.run, "folder that tessera train --out made; needed");
  table.path("data", options.data, "a file, a folder or a token file, of which all text is used")
      .unset = "the validation part of the run's own text";
  table.whole("batch", options.batch, {.least = 0, .most = 1'000'000},
              "sequences at a time, over all ranks; 0: as in training");
  table.whole("ranks", options.ranks, {.least = 1, .most = 1024}, "threads that share the model");
  table.choice("device", options.device, {"cpu", "cuda"}, "where they compute").unset = "the run's";
}

int evaluate(const EvalOptions& options, int argc, char** argv) {
  if (options.run.empty()) throw CannotStart("--run is needed: a folder that train --out made");
  SavedRun saved = open_run(options.run, {.ranks = options.ranks, .device = options.device});
  if (options.batch > 0) saved.options.batch = options.batch;
  const std::string data = options.data.empty() ? saved.options.data : options.data;
  const TextData text = load_text(data, saved.tokenizer->name());
  const models::data::PackedSequences sequences(
      options.data.empty() ? text.text.validation : whole_text(text.text), saved.options.seq_len);
  models::EvalMetrics found;  // rank 0's; equal on all ranks
  const distributed::LaunchResult result = distributed::launch(
      argc, argv, saved.options.launch_options(), [&](distributed::World& world) {
        LanguageRun run = load_on_ranks(world, saved);
        models::LanguageTask task(
            world, run.net->language_model(), sequences, sequences, *saved.tokenizer,
            {.batch = saved.options.batch,
             .data_mesh = run.meshes.data,
             .micro_batch = options.batch > 0 ? 0 : saved.options.micro_batch});
        const models::EvalMetrics metrics = task.evaluate();
        check_finite(world, saved, *run.net, task, metrics);
        if (world.rank() == 0) found = metrics;
      });
  if (result.exit_code != 0) {
    print_failure(result.failure);
    return result.exit_code;
  }
  print_output("{}\n", describe(found));
  return kDone;
}

}  // namespace tessera::tools
