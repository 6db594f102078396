#include "tessera/tools/program/train.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "tessera/models/data/fashion_mnist.h"
#include "tessera/tensor/determinism.h"
#include "tessera/tensor/tf32.h"
#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/progress.h"
#include "tessera/tools/program/run_folder.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/text_data.h"

namespace tessera::tools {
namespace {

bool is_language(const TrainOptions& options) { return options.model != "mlp"; }

// Prints what should be known of the data.
void check_data(const TrainOptions& options) {
  if (!is_language(options)) return models::data::check_fashion_mnist(options.data);
  const std::string note = check_text(options.data, options.tokenizer, options.seq_len);
  if (!note.empty()) fmt::print("note       {}\n", note);
  std::fflush(stdout);
}

void check_folder(const TrainOptions& options) {
  if (options.out.empty()) return;
  check_run_folder(options.out, {options.data, options.tokenizer});
  // Ranks read the text while the run writes.
  if (is_language(options) && std::filesystem::is_directory(options.data) &&
      is_within(options.out, options.data))
    throw CannotStart(
        fmt::format("--out: {} lies in the folder of --data, and would be learned "
                    "from; choose another folder",
                    options.out));
}

void prepare_folder(const TrainOptions& options) {
  TrainOptions kept = options;
  kept.out.clear();  // a repetition has a folder and a trace of its own, or none
  kept.trace = false;
  prepare_run_folder(options.out, config_text(kept));
  // A model can do nothing without its tokenizer.
  if (is_language(options) && options.tokenizer != "bytes")
    std::filesystem::copy_file(options.tokenizer, options.out + "/" + kTokenizerFile);
}

// Of a run that failed: the live line stays above the message.
int report_failure(const std::string& failure) {
  if (on_terminal()) fmt::print("\n");
  std::fflush(stdout);
  fmt::print(stderr, "tessera: {}\n", failure);
  return kRunFailed;
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
  // A rank's process comes by here again; what it would find was found by its parent.
  const bool is_first_launcher = !distributed::is_rank_process() && options.node_rank == 0;
  if (!distributed::is_rank_process()) {
    check_machine(options, this_machine(options));
    check_folder(options);
    check_data(options);
  }
  if (is_first_launcher && !options.out.empty()) prepare_folder(options);
  const distributed::LaunchResult result =
      distributed::launch(argc, argv, options.launch_options(),
                          is_language(options) ? language_body(options) : mlp_body(options));
  if (is_first_launcher) finish_run_folder(options.out, result.failure);
  return result.exit_code == 0 ? kDone : report_failure(result.failure);
}

}  // namespace tessera::tools
