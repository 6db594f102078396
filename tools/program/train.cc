#include "tessera/tools/program/train.h"

#include <fmt/format.h>
#include <signal.h>

#include <exception>
#include <memory>
#include <vector>

#include "tessera/models/data/fashion_mnist.h"
#include "tessera/tensor/determinism.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tensor/tf32.h"
#include "tessera/tools/program/interruption.h"
#include "tessera/tools/program/options/cannot_start.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/output_paths.h"
#include "tessera/tools/program/progress.h"
#include "tessera/tools/program/run_folder.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/text_data.h"

namespace tessera::tools {
namespace {

bool is_language(const TrainOptions& options) { return options.model != "mlp"; }

// Checks the data and prints a note about it, if any.
void check_data(const TrainOptions& options) {
  if (!is_language(options)) return models::data::check_fashion_mnist(options.data);
  const std::string note = check_text(options.data, options.tokenizer, options.seq_len);
  if (!note.empty()) print_output("note       {}\n", note);
}

std::vector<Input> inputs_of(const TrainOptions& options) {
  std::vector<Input> inputs = {{"--data", options.data}, {"--config", options.config}};
  if (options.tokenizer != "bytes") inputs.push_back({"--tokenizer", options.tokenizer});
  return inputs;
}

std::unique_ptr<RunFolder> hold_folder(const TrainOptions& options) {
  config_text(options);  // event files keep all of it: what cannot be kept is refused before a step
  TrainOptions kept = options;
  kept.out.clear();  // a repetition has its own folder and trace, or none
  kept.trace = false;
  // A model is useless without its tokenizer.
  return std::make_unique<RunFolder>(options.out, config_text(kept),
                                     options.tokenizer == "bytes" ? "" : options.tokenizer);
}

// Prints below the progress line, which stays.
void print_last(const std::string& text) {
  try {
    if (on_terminal()) write_output("\n");
  } catch (const Error&) {  // the terminal is gone
  }
  print_failure(text);
}

// Writes the failure into its reserved space before anything else.
int report_failure(RunFolder* folder, const std::string& failure) {
  if (folder != nullptr) folder->write_failure(printable(failure));
  print_last(failure);
  return kRunFailed;
}

// A report that cannot be written is a failure of the run too.
void finish_folder(RunFolder& folder, const TrainOptions& options, bool failed) {
  if (!folder.has_begun()) return;
  try {
    finish_run_folder(options.out, failed);
  } catch (const std::exception& error) {
    folder.write_failure(printable(failure_text(error)));
    throw;
  }
}

// If launch() itself throws, nothing was started: the options or the machine do not allow it.
distributed::LaunchResult launch_ranks(const TrainOptions& options, int argc, char** argv) {
  try {
    return distributed::launch(argc, argv, options.launch_options(),
                               is_language(options) ? language_body(options) : mlp_body(options));
  } catch (const Error& error) {
    throw CannotStart(error.what());
  }
}

}  // namespace

Machine this_machine(const TrainOptions& options) {
  Machine machine{.cpu = detect_cpu_flags(), .gpus = {}};
  if (options.device == "cuda")
    machine.gpus = distributed::facts_of_this_host(options.launch_options());
  return machine;
}

void check_machine(const TrainOptions& options, const Machine& machine) {
  try {
    choose_cpu_isa(machine.cpu, requested_cpu_isa());
  } catch (const DeviceError& error) {
    throw CannotStart(error.what());
  }
  const std::string shortage = distributed::gpu_shortage(options.launch_options(), machine.gpus);
  if (!shortage.empty()) throw CannotStart("--device cuda: " + shortage);
  if (!options.cuda_graphs || options.world_size() == 1) return;
  if (!distributed::plan_gpus(options.launch_options(), machine.gpus).by_nccl)
    throw CannotStart(fmt::format(
        "--cuda-graphs: {} ranks that share {} meet on the host, which cannot be recorded; give "
        "each a GPU of its own, or train on one rank",
        options.ranks, machine.gpus.gpus == 1 ? "one GPU" : "GPUs"));
}

int train(const TrainOptions& asked, int argc, char** argv) {
  TrainOptions options = asked;
  set_deterministic(options.deterministic);
  set_tf32_allowed(options.tf32);
  if (is_language(options)) options.tokenizer = tokenizer_for(options.data, options.tokenizer);
  // A rank process runs this code again; its parent has made the checks.
  const bool is_launcher = !distributed::is_rank_process();
  const bool writes = is_launcher && options.node_rank == 0 && !options.out.empty();
  if (is_launcher) {
    check_machine(options, this_machine(options));
    if (writes) check_run_folder(options.out, inputs_of(options));
    check_data(options);
  }
  const std::unique_ptr<RunFolder> folder = writes ? hold_folder(options) : nullptr;
  const distributed::LaunchResult result = launch_ranks(options, argc, argv);
  const bool failed = !result.failure.empty();
  const int code = failed ? report_failure(folder.get(), result.failure) : result.exit_code;
  if (folder) finish_folder(*folder, options, failed);
  // If the reader closed the output, print nothing more.
  if (result.signal != 0 && result.signal != SIGPIPE)
    print_last(interruption_text(options, result));
  return code;
}

}  // namespace tessera::tools
