#include "tessera/tools/program/saved_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/fsdp/state/state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/check.h"
#include "tessera/tools/program/options/cannot_start.h"
#include "tessera/tools/program/options/config_file.h"
#include "tessera/tools/program/options/words.h"
#include "tessera/tools/program/run_folder.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {
namespace {

// The model of a configuration, after checking the version that wrote it.
std::string model_of(const std::string& path) {
  const ConfigHead head = read_config_head(path);
  const std::string version = head.version.value_or("");
  if (version != kVersion)
    throw CannotStart(
        fmt::format("{} is of tessera \"{}\", this is {}; train again", path, version, kVersion));
  const auto& names = language_family_names();
  if (std::find(names.begin(), names.end(), head.model) == names.end())
    throw CannotStart(
        fmt::format("{} is of the model \"{}\", which knows no text; name a run of {}", path,
                    head.model, joined(names, ", ")));
  return head.model;
}

TrainOptions read_options(const std::string& path, const std::string& model) {
  TrainOptions options = default_options(model);
  OptionTable table;
  fill_table(table, options);
  for (const auto& [name, word] : read_config(path, model, table)) table.find(name)->set(word);
  return options;
}

// The first few names.
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const std::size_t left = names.size() - shown.size();
  return "\"" + joined(shown, "\", \"") + "\"" +
         (left > 0 ? fmt::format(" and {} more", left) : "");
}

void check_names(const nn::LoadReport& report, const std::string& path) {
  TESSERA_CHECK_AS(CheckpointError, report.missing.empty(), "run", "{} lacks {}", path,
                   names_text(report.missing));
  TESSERA_CHECK_AS(CheckpointError, report.unexpected.empty(), "run",
                   "{} has {}, which the model of {} does not have", path,
                   names_text(report.unexpected), kConfigFile);
}

std::string with_advice(const Error& error) {
  return fmt::format(
      "{}; the weights are damaged or of another run than {}: take a copy of the "
      "folder, or train again",
      error.what(), kConfigFile);
}

}  // namespace

SavedRun open_run(const std::string& folder, const RunRanks& ranks) {
  if (!std::filesystem::is_directory(folder))
    throw CannotStart(
        fmt::format("--run: there is no folder {}; name one that train --out made", folder));
  const std::string config = folder + "/" + kConfigFile;
  SavedRun saved{
      .folder = folder, .options = read_options(config, model_of(config)), .tokenizer = nullptr};
  // The run's sharding and the way its steps were launched do not affect the weights.
  saved.options.ranks = ranks.ranks;
  if (!ranks.device.empty()) saved.options.device = ranks.device;
  saved.options.nnodes = 1;
  saved.options.tensor_parallel = 1;
  saved.options.shard = "full";
  saved.options.mesh.clear();
  saved.options.launch = "threads";
  saved.options.cuda_graphs = false;
  saved.options.timeout = TrainOptions().timeout;
  check_machine(saved.options, this_machine(saved.options));
  if (!std::filesystem::exists(folder + "/" + kModelFile))
    throw_error<Error>("run", "{} has no {}: the run did not end; train again", folder, kModelFile);
  saved.tokenizer = models::data::open_tokenizer(
      saved.options.tokenizer == "bytes" ? "bytes" : folder + "/" + kTokenizerFile);
  return saved;
}

LanguageRun load_on_ranks(const distributed::World& world, const SavedRun& saved) {
  LanguageRun run = build_on_ranks(world, saved.options, saved.tokenizer->vocab_size());
  const std::string path = saved.folder + "/" + kModelFile;
  try {
    nn::StateDict state;
    if (world.rank() == 0) state = nn::load_state(path);
    // Names are checked here, with an error text for the command line.
    const nn::LoadReport report = fsdp::load_full_state_dict(
        run.net->module(), state,
        {.strict = false, .device = world.device(), .mesh = world.mesh()});
    check_names(report, path);
  } catch (const CheckpointError& error) {
    throw CheckpointError(with_advice(error));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(with_advice(error));
  }
  return run;
}

}  // namespace tessera::tools
