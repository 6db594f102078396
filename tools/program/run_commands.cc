#include "tessera/tools/program/command_line.h"

#include <poll.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "tessera/distributed/launch/launch.h"
#include "tessera/models/data/utf8.h"
#include "tessera/models/runs/language_family.h"
#include "tessera/models/runs/option_table.h"
#include "tessera/models/runs/run.h"
#include "tessera/models/runs/words.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

struct RunRanks {
  int ranks = 1;
  std::string device;  ///< "cpu", "cuda"; empty: the run's
};
// The options of a run that rank threads are to use. Throws OptionError and CannotStart.
TrainOptions options_of_run(const std::string& folder, const RunRanks& ranks) {
  if (folder.empty()) throw CannotStart("--run is needed: a folder that train --out made");
  TrainOptions options = models::read_run_config(folder);
  // The run's sharding and the way its steps were launched do not affect the weights.
  options.ranks = ranks.ranks;
  if (!ranks.device.empty()) options.device = ranks.device;
  options.nnodes = 1;
  options.shard = "full";
  options.launch = "threads";
  options.cuda_graphs = false;
  options.timeout = TrainOptions().timeout;
  check_machine(options, this_machine(options));
  return options;
}

}  // namespace

void fill_table(OptionTable& table, EvalOptions& options) {
  table.group("Options");
  table.path("run", options.run, "folder that tessera train --out made; needed");
  table
      .path("data", options.data,
            "a file, a folder or a token file, of which all text is used; for an mlp the folder of "
            "the four Fashion-MNIST files")
      .unset = "the validation part of the run's own text, or its test images";
  table.whole("batch", options.batch, {.least = 0, .most = 1'000'000},
              "sequences or images at a time, over all ranks; 0: as in training");
  table.whole("ranks", options.ranks, {.least = 1, .most = 1024}, "threads that share the model");
  table.choice("device", options.device, {"cpu", "cuda"}, "where they compute").unset = "the run's";
}

int evaluate(const EvalOptions& options, int argc, char** argv) {
  const TrainOptions config =
      options_of_run(options.run, {.ranks = options.ranks, .device = options.device});
  const models::EvalData data = models::read_eval_data(options.run, options.data);
  models::EvalMetrics found;  // rank 0's; equal on all ranks
  const distributed::LaunchResult result =
      distributed::launch(argc, argv, config.launch_options(), [&](distributed::World& world) {
        models::Run run = models::open_run(world, options.run);
        const models::EvalMetrics metrics = run.evaluate(data, options.batch);
        if (world.rank() == 0) found = metrics;
      });
  if (result.exit_code != 0) {
    print_failure(result.failure);
    return result.exit_code;
  }
  print_output("{}\n", describe(found));
  return kDone;
}

namespace {

// All of standard input. A stream of the standard library would take an error for its end.
std::string read_input() {
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got == 0) return text;
    if (got > 0) {
      text.append(piece.data(), static_cast<std::size_t>(got));
    } else if (errno == EAGAIN) {  // another process made the pipe non-blocking
      pollfd more = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      ::poll(&more, 1, -1);
    } else if (errno != EINTR) {
      throw CannotStart(fmt::format("--prompt: standard input cannot be read: {}; give it the text",
                                    std::strerror(errno)));
    }
  }
}

std::string prompt_text(const std::string& typed) { return typed == "-" ? read_input() : typed; }

}  // namespace

void fill_table(OptionTable& table, GenerateOptions& options) {
  table.group("Options");
  table.path("run", options.run, "folder that tessera train --out made; needed");
  table
      .text("prompt", options.request.prompt,
            "what the text begins with; -: read from standard input")
      .unset = "the beginning of a document";
  table.whole("max-tokens", options.request.max_tokens, {.least = 1, .most = 1'000'000},
              "tokens to add; the model may end the text before");
  table.number("temperature", options.request.temperature, not_negative(),
               "above 1 for more surprise; 0: always the most likely token");
  table.whole("top-k", options.request.top_k, {.least = 0, .most = 1'000'000},
              "choose among so many most likely tokens; 0: all");
  table.number(
      "top-p", options.request.top_p,
      number_check("a number in (0, 1]", [](double value) { return value > 0 && value <= 1; }),
      "choose among the most likely tokens that add up to this; 1: all");
  table.whole("seed", options.request.seed,
              {.least = 0, .most = std::numeric_limits<std::uint64_t>::max()},
              "another number, another text");
  table.whole("ranks", options.ranks, {.least = 1, .most = 1024}, "threads that share the model");
  table.choice("device", options.device, {"cpu", "cuda"}, "where they compute").unset = "the run's";
}

int generate(GenerateOptions options, int argc, char** argv) {
  const TrainOptions config =
      options_of_run(options.run, {.ranks = options.ranks, .device = options.device});
  if (config.model == kMlp)
    throw CannotStart(
        fmt::format("--run: {} is of the model \"{}\", which knows no text; name a run of {}",
                    options.run, config.model, joined(language_family_names(), ", ")));
  options.request.prompt = prompt_text(options.request.prompt);
  if (const auto at = models::data::find_invalid_utf8(options.request.prompt);
      at != std::string::npos)
    throw CannotStart(fmt::format("--prompt: byte {} is not UTF-8", at));
  std::atomic<bool> output_closed{false};
  const auto print = [&](const std::string& text) {
    try {
      write_output(text);
    } catch (const OutputClosed&) {
      output_closed = true;  // the failure text alone would not show it
      throw;
    }
  };
  const distributed::LaunchResult result =
      distributed::launch(argc, argv, config.launch_options(), [&](distributed::World& world) {
        models::Run run = models::open_run(world, options.run);
        const bool shows = world.rank() == 0;
        if (shows) print(options.request.prompt);
        run.generate(options.request, shows ? print : std::function<void(const std::string&)>());
        if (shows) print("\n");
      });
  if (output_closed) return kOutputClosed;
  if (result.exit_code != 0) print_failure(result.failure);
  return result.exit_code;
}

}  // namespace tessera::tools
