#include "tessera/tools/program/eval_command.h"

#include <fmt/format.h>

#include <cstdio>

#include "tessera/distributed/launch.h"
#include "tessera/models/language_task.h"
#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/saved_run.h"
#include "tessera/tools/program/text_data.h"

namespace tessera::tools {

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
  const distributed::LaunchResult result = distributed::launch(
      argc, argv, saved.options.launch_options(), [&](distributed::World& world) {
        LanguageRun run = load_on_ranks(world, saved);
        models::LanguageTask task(
            world, run.net->language_model(), sequences, sequences, *saved.tokenizer,
            {.batch = saved.options.batch,
             .data_mesh = run.meshes.data,
             .micro_batch = options.batch > 0 ? 0 : saved.options.micro_batch});
        const models::EvalMetrics metrics = task.evaluate();
        if (world.rank() == 0) fmt::print("{}\n", describe(metrics));
      });
  if (result.exit_code != 0) fmt::print(stderr, "tessera: {}\n", result.failure);
  return result.exit_code;
}

}  // namespace tessera::tools
