#include "tessera/models/runs/train_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "tessera/distributed/launch/foreign_launcher.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/data/text_files.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/runs/config_file.h"
#include "tessera/models/runs/language_family.h"
#include "tessera/models/runs/mesh_plan.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/training_presets.h"

namespace tessera::models::runs {
namespace {

TrainOptions default_mlp_options(const std::string& preset) {
  TrainOptions options;
  const MlpPreset& model = preset.empty() ? mlp_presets().front() : mlp_preset(preset);
  options.model = kMlp;
  options.preset = model.name;
  options.data = data::kFashionMnistFolder;
  options.hidden = model.hidden;
  options.activation = activation_name(model.activation);
  options.epochs = 10;
  return options;
}

TrainOptions default_language_options(const LanguageFamily& family, const std::string& preset) {
  TrainOptions options;
  options.model = family.name();
  options.preset = preset.empty() ? family.presets().front() : preset;
  options.data = data::kDefaultCorpus;
  options.sizes = family.sizes_of(options.preset);
  const TrainingPreset& training = training_preset(options.model, options.preset);
  options.seq_len = training.seq_len > 0 ? training.seq_len : family.length_of(options.preset);
  options.dropout = family.dropout_of(options.preset);
  options.steps = training.steps;
  options.batch = training.batch;
  options.lr = training.lr;
  options.min_lr = training.min_lr;
  options.warmup = training.warmup;
  options.weight_decay = training.weight_decay;
  options.beta1 = training.beta1;
  options.beta2 = training.beta2;
  options.clip_grad = training.clip_grad;
  return options;
}

// Removes everything that the file's preset decided, because another preset was typed.
void forget_preset(std::map<std::string, std::string>& words, const OptionTable& table) {
  for (const Option& option : table.options())
    if (option.of_preset) words.erase(option.name);
}

// A head belongs to one rank.
void check_tensor_parallel(const TrainOptions& options) {
  for (const char* name : {"heads", "kv-heads"}) {
    const auto size = options.sizes.find(name);
    if (size == options.sizes.end()) continue;
    const auto heads = static_cast<std::int64_t>(size->second);
    if (heads % options.tensor_parallel != 0)
      throw OptionError(fmt::format("--tensor-parallel: {} ranks cannot share {} of --{} evenly",
                                    options.tensor_parallel, heads, name));
  }
}

// Runs the model's own checks of its sizes; construction allocates no memory.
void check_sizes(const TrainOptions& options) {
  if (options.model == kMlp) return;
  try {
    language_family(options.model)
        .build({.preset = options.preset,
                .sizes = options.sizes,
                .max_seq_len = options.seq_len,
                .dropout = options.dropout,
                .dtype = precision_named(options.precision).storage});
  } catch (const InvalidArgument& error) {
    throw OptionError(error.what());
  }
}

distributed::NcclBuffers nccl_buffers_named(const std::string& name) {
  if (name == "registered") return distributed::NcclBuffers::kRegistered;
  if (name == "symmetric") return distributed::NcclBuffers::kSymmetric;
  return distributed::NcclBuffers::kNone;
}

distributed::LaunchMode launch_mode_named(const std::string& name) {
  if (name == "threads") return distributed::LaunchMode::kThreads;
  if (name == "processes") return distributed::LaunchMode::kProcesses;
  return distributed::LaunchMode::kAuto;
}

distributed::RankBinding binding_named(const std::string& name) {
  if (name == "none") return distributed::RankBinding::kNone;
  if (name == "cores") return distributed::RankBinding::kCores;
  return distributed::RankBinding::kAuto;
}

// Where another launcher has started this process as a rank, its world replaces the numbers of ranks
// and hosts, also those of the file of --config, and contradicts typed ones.
void join_foreign_world(TrainOptions& options, const OptionTable& table) {
  if (options.launch != "auto") return;
  const auto typed = [&](const char* name, int value) {
    return table.typed(name) ? std::optional(value) : std::nullopt;
  };
  try {
    const std::optional<distributed::ForeignWorld> world = distributed::foreign_world();
    if (!world) return;
    distributed::check_asked(*world, {.ranks = typed("ranks", options.ranks),
                                      .nnodes = typed("nnodes", options.nnodes),
                                      .node_rank = typed("node-rank", options.node_rank)});
    options.ranks = world->local_size;
    options.nnodes = world->hosts();
    options.node_rank = world->node_rank();
    options.foreign_rank = world->rank;
  } catch (const InvalidArgument& error) {
    throw OptionError(error.what());
  }
}

// Rejects options with which a step would differ from the captured one.
void check_cuda_graphs(const TrainOptions& options) {
  if (!options.cuda_graphs) return;
  if (options.device != "cuda") throw OptionError("--cuda-graphs: is for GPUs; add --device cuda");
  if (options.dropout > 0)
    throw OptionError(
        fmt::format("--cuda-graphs: would drop the same activations in each step; set --dropout 0 "
                    "instead of {}",
                    options.dropout));
  if (precision_named(options.precision).needs_loss_scale())
    throw OptionError(fmt::format(
        "--cuda-graphs: would repeat one loss scale, which --precision {} changes from step to "
        "step; take bf16",
        options.precision));
  if (options.sizes.contains("experts"))
    throw OptionError(
        "--cuda-graphs: the host reads which experts tokens go to, and cannot while "
        "a step is recorded; leave it out");
  if (options.trace)
    throw OptionError(
        "--trace: shows single operations, and with --cuda-graphs a step is one; "
        "leave one of the two out");
  if (options.profile > 0)
    throw OptionError(
        "--profile: shows single operations, and with --cuda-graphs a step is one; "
        "leave one of the two out");
}

// What was typed: a configuration may hold --save-every for runs with and without --out.
void check_checkpoints(const TrainOptions& options, const OptionTable& table) {
  if (!options.out.empty()) return;
  if (const auto word = table.typed("save-every"); word && !save_period_of(*word)->never())
    throw OptionError("--save-every: saves into the folder of --out; name one");
  if (options.resume == kResumeAuto)
    throw OptionError("--resume: auto is the newest checkpoint of --out; name that folder");
}

void check_together(const TrainOptions& options) {
  check_cuda_graphs(options);
  if (options.device != "cuda" && options.tf32)
    throw OptionError("--tf32: is for GPUs; add --device cuda");
  if (options.device != "cuda" && options.nccl_buffers != "none")
    throw OptionError("--nccl-buffers: are on GPUs; add --device cuda");
  plan_mesh(options);  // throws if the mesh is invalid
  check_tensor_parallel(options);
  check_sizes(options);
  if (options.nnodes > 1 && options.launch == "threads")
    throw OptionError("--nnodes: several hosts run together only with --launch processes");
  if (options.nnodes > 1 && options.rdzv_endpoint.empty() && !options.foreign_rank)
    throw OptionError("--nnodes: several hosts need --rdzv-endpoint HOST:PORT, where they meet");
  if (options.node_rank >= options.nnodes)
    throw OptionError(
        fmt::format("--node-rank: {} is not below --nnodes {}", options.node_rank, options.nnodes));
  if (options.min_lr > options.lr)
    throw OptionError(fmt::format("--min-lr: {} is above --lr {}", options.min_lr, options.lr));
  if (options.trace && options.out.empty())
    throw OptionError("--trace writes trace.json into the folder of --out; name one");
  if (options.trace && options.profile > 0)
    throw OptionError(
        "--profile: measures steps that --trace may record at the same time; leave one of the two "
        "out");
}

}  // namespace

MlpOptions TrainOptions::mlp() const {
  return {.in = data::kImagePixels,
          .hidden = hidden,
          .classes = data::kImageClasses,
          .activation = activation_named(activation),
          .dtype = precision_named(precision).storage};
}

distributed::LaunchOptions TrainOptions::launch_options() const {
  return {
      .ranks = ranks,
      .mode = launch_mode_named(launch),
      .device = device == "cuda" ? Device{DeviceType::kCuda, 0} : kCpu,
      // Sharded parameters are gathered and reduced at the same time.
      .nccl = {.separate_reductions = shard != "replicate",
               .buffers = nccl_buffers_named(nccl_buffers)},
      .cpu_compute = cpu_compute == "queued" ? StreamKind::kQueued : StreamKind::kInline,
      .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(timeout * 1000))),
      .checked = checked,
      .bind = binding_named(bind),
      .nnodes = nnodes,
      .node_rank = node_rank,
      .rdzv_endpoint = rdzv_endpoint,
      .rdzv_id = rdzv_id,
      .rdzv_secret_file = rdzv_secret_file,
      .local_addr = local_addr};
}

std::optional<SavePeriod> save_period_of(const std::string& word) {
  constexpr std::int64_t kMost = 1'000'000'000;
  std::int64_t number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || number < 0 || number > kMost) return std::nullopt;
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const auto amount = static_cast<double>(number);
  if (unit.empty()) return SavePeriod{.steps = number};
  if (unit == "s") return SavePeriod{.seconds = amount};
  if (unit == "m") return SavePeriod{.seconds = 60 * amount};
  if (unit == "h") return SavePeriod{.seconds = 3600 * amount};
  return std::nullopt;
}

const char* TrainOptions::kind_of_ranks() const {
  return launch == "threads" ? "threads" : "processes";
}

SavePeriod TrainOptions::save_period() const {
  if (out.empty()) return {};
  if (!save_every.empty()) return *save_period_of(save_every);
  return nnodes > 1 ? SavePeriod{} : SavePeriod{.seconds = 600};
}

TrainOptions default_options(const std::string& model, const std::string& preset) {
  return model == kMlp ? default_mlp_options(preset)
                       : default_language_options(language_family(model), preset);
}

std::vector<std::string> preset_names(const std::string& model) {
  if (model != kMlp) return language_family(model).presets();
  std::vector<std::string> names;
  for (const MlpPreset& preset : mlp_presets()) names.emplace_back(preset.name);
  return names;
}

void complete_options(TrainOptions& options, OptionTable& table) {
  std::map<std::string, std::string> words;
  if (const auto path = table.typed("config"))
    words = read_config(absolute_path(*path), options.model, table);
  std::string preset = words.contains("preset") ? words["preset"] : options.preset;
  if (const auto typed = table.typed("preset"); typed && *typed != preset) {
    preset = *typed;
    forget_preset(words, table);
  }
  options = default_options(options.model, preset);
  // Words of the command line are set last, so that they win over options that they exclude.
  for (const auto& [name, word] : words) table.find(name)->set(word);
  table.apply_typed();
  join_foreign_world(options, table);
  check_checkpoints(options, table);
  check_together(options);
}

TrainOptions read_options(const std::string& path, const std::string& model) {
  TrainOptions options = default_options(model);
  OptionTable table;
  fill_table(table, options);
  for (const auto& [name, word] : read_config(path, model, table)) table.find(name)->set(word);
  return options;
}

std::string config_text(const TrainOptions& options) {
  TrainOptions copy = options;
  OptionTable table;
  fill_table(table, copy);
  return config_text(options.model, table);
}

}  // namespace tessera::models::runs
