#include "tessera/models/runs/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/rank_texts.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/runs/config_file.h"
#include "tessera/models/runs/language_run.h"
#include "tessera/models/runs/on_every_rank.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/text_data.h"
#include "tessera/models/runs/words.h"
#include "tessera/models/training/first_bad_tensor.h"
#include "tessera/models/training/image_task.h"
#include "tessera/models/training/language_task.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/check.h"

namespace tessera::models {

using runs::LanguageNet;
using runs::OptionError;
using runs::TrainOptions;

namespace {

constexpr const char* kWhere = "open_run";

bool is_language(const TrainOptions& config) { return config.model != runs::kMlp; }

std::string tokenizer_name(const std::string& folder, const TrainOptions& config) {
  return config.tokenizer == "bytes" ? config.tokenizer : folder + "/" + kTokenizerFile;
}

// The model of a configuration, after checking the version that wrote it.
std::string model_of(const std::string& path) {
  const runs::ConfigHead head = runs::read_config_head(path);
  const std::string version = head.version.value_or("");
  if (version != runs::kVersion)
    throw_error<OptionError>(kWhere,
                             "{} is of tessera \"{}\", this is {}; train again, or use "
                             "that version",
                             path, version, runs::kVersion);
  std::vector<std::string> names = runs::language_family_names();
  names.emplace_back(runs::kMlp);
  if (std::find(names.begin(), names.end(), head.model) == names.end())
    throw_error<OptionError>(kWhere, "{} is of the model \"{}\"; there are: {}", path, head.model,
                             runs::joined(names, ", "));
  return head.model;
}

// The first few names.
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  const std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const std::size_t left = names.size() - shown.size();
  return "\"" + runs::joined(shown, "\", \"") + "\"" +
         (left > 0 ? fmt::format(" and {} more", left) : "");
}

void check_names(const nn::LoadReport& report, const std::string& path) {
  TESSERA_CHECK_AS(CheckpointError, report.missing.empty(), kWhere, "{} lacks {}", path,
                   names_text(report.missing));
  TESSERA_CHECK_AS(CheckpointError, report.unexpected.empty(), kWhere,
                   "{} has {}, which the model of {} does not have", path,
                   names_text(report.unexpected), kConfigFile);
}

std::string with_advice(const std::string& error) {
  return fmt::format(
      "{}; the weights are damaged or of another run than {}: take a copy of the "
      "folder, or train again",
      error, kConfigFile);
}

// Throws for a path that the system refuses to look up.
std::filesystem::file_type type_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none)
    throw_error<OptionError>(kWhere,
                             "{} cannot be read: {}; name a folder that tessera train --out made",
                             path, error.message());
  return type;
}

bool exists(const std::string& path) {
  return type_of(path) != std::filesystem::file_type::not_found;
}

// Where the weights of a run are.
struct Weights {
  std::string run;         // its folder
  std::string checkpoint;  // the checkpoint that has them; empty: the file of the complete run
};

// `folder` is a run, or one of its checkpoints. Without the file, they are in its newest checkpoint.
Weights weights_of(const std::string& folder) {
  namespace fs = std::filesystem;
  if (exists(folder + "/" + checkpoint::kIndexFile)) {
    const fs::path path = fs::absolute(folder).lexically_normal();
    const fs::path step = path.has_filename() ? path : path.parent_path();
    return {.run = step.parent_path().parent_path().string(), .checkpoint = step.string()};
  }
  if (exists(folder + "/" + kModelFile)) return {.run = folder, .checkpoint = {}};
  return {.run = folder,
          .checkpoint = checkpoint::newest(folder + "/" + kCheckpointsFolder).value_or("")};
}

// The weights of a checkpoint. Each rank reads its part. Collective if there is a group.
void load_checkpoint(nn::Module& module, const std::string& folder,
                     const std::shared_ptr<distributed::ProcessGroup>& group, Device device) {
  try {
    checkpoint::load(folder, {.group = group, .model = &module}, {.device = device});
  } catch (const CheckpointError& error) {
    throw CheckpointError(with_advice(error.what()));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(with_advice(error.what()));
  }
}

// Rank 0 reads the file; the options say whether it sends the weights to others. Collective.
void load_weights(nn::Module& module, const std::string& folder, distributed::ProcessGroup& group,
                  fsdp::LoadFullStateOptions options) {
  const std::string path = folder + "/" + kModelFile;
  options.strict = false;  // names are checked here, with their own text
  try {
    const nn::StateDict state = runs::on_every_rank(group, [&] {
      return group.rank() == 0 ? nn::load_state(path, {.device = kCpu}) : nn::StateDict();
    });
    check_names(fsdp::load_full_state_dict(module, state, options), path);
  } catch (const CheckpointError& error) {
    throw CheckpointError(with_advice(error.what()));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(with_advice(error.what()));
  }
}

}  // namespace

struct Run::State {
  std::string folder;      // as it was named
  std::string checkpoint;  // empty: the weights are in the file of the complete run
  std::string run;         // the run's folder
  TrainOptions config;
  std::unique_ptr<data::Tokenizer> tokenizer;     // null for the mlp
  std::unique_ptr<distributed::World> own_world;  // of one rank, if the run was opened without
  distributed::World* world = nullptr;
  distributed::DeviceMesh data_mesh;
  std::unique_ptr<LanguageNet> net;  // or
  std::unique_ptr<MlpStack> mlp;

  nn::Module& module() { return net ? net->module() : *mlp; }
  void check_language(const char* where) const {
    TESSERA_CHECK_AS(StateError, net != nullptr, where,
                     "{} is a run of {}, which knows no text; open a run of {}", folder,
                     config.model, runs::joined(runs::language_family_names(), ", "));
  }
};

// Builds the state of a run step by step.
class RunOpener {
 public:
  explicit RunOpener(const std::string& folder) : state_(std::make_unique<Run::State>()) {
    state_->folder = folder;
    state_->config = read_run_config(folder);
    const Weights weights = weights_of(folder);
    state_->checkpoint = weights.checkpoint;
    state_->run = weights.run;
    if (!is_language(state_->config)) {
      state_->mlp = std::make_unique<MlpStack>(state_->config.mlp());
      return;
    }
    state_->tokenizer = data::open_tokenizer(tokenizer_name(state_->run, state_->config));
    state_->net = runs::build_net(state_->config, state_->tokenizer->vocab_size());
  }

  Run alone(Device device) {
    const auto group = distributed::make_local_groups("run", 1).front();
    state_->own_world = std::make_unique<distributed::World>(group, device, current_rank_context());
    state_->world = state_->own_world.get();
    state_->data_mesh = state_->world->mesh();
    if (state_->checkpoint.empty())
      load_weights(state_->module(), state_->run, *group,
                   {.broadcast_from_rank0 = false, .device = device});
    else
      load_checkpoint(state_->module(), state_->checkpoint, nullptr, device);
    return Run(std::move(state_));
  }

  Run sharded(distributed::World& world, const ShardedRunOptions& options) {
    TrainOptions plan = state_->config;
    plan.nnodes = world.nodes();
    plan.ranks = world.ranks_per_node();
    plan.shard = options.shard;
    plan.mesh = options.mesh;
    plan.tensor_parallel = options.tensor_parallel;
    const runs::RunMeshes meshes = runs::make_meshes(world, runs::plan_mesh(plan));
    const ParallelizeOptions parallel = runs::parallelize_options(plan, meshes);
    state_->net ? state_->net->parallelize(parallel) : parallelize(*state_->mlp, parallel);
    state_->world = &world;
    state_->data_mesh = meshes.data;
    // Another rank may have seen another newest checkpoint.
    state_->checkpoint = distributed::first_text(world.group().get(), state_->checkpoint);
    if (state_->checkpoint.empty())
      load_weights(state_->module(), state_->run, *world.group(),
                   {.device = world.device(), .mesh = world.mesh()});
    else
      load_checkpoint(state_->module(), state_->checkpoint, world.group(), world.device());
    return Run(std::move(state_));
  }

 private:
  std::unique_ptr<Run::State> state_;
};

Run::Run(std::unique_ptr<State> state) : state_(std::move(state)) {}
Run::Run(Run&&) noexcept = default;
Run& Run::operator=(Run&&) noexcept = default;
Run::~Run() = default;

const std::string& Run::folder() const { return state_->folder; }
const TrainOptions& Run::config() const { return state_->config; }
nn::Module& Run::module() { return state_->module(); }

void Run::throw_other_model(const std::type_info& wanted) {
  throw_error<StateError>("run.model", "{} is a run of {}, whose class is {}, not {}",
                          state_->folder, state_->config.model, module().type_name(),
                          nn::detail::short_type_name(wanted));
}

const data::Tokenizer& Run::tokenizer() const {
  state_->check_language("run.tokenizer");
  return *state_->tokenizer;
}

LanguageModel Run::language_model() {
  state_->check_language("run.language_model");
  return state_->net->language_model();
}

std::string Run::generate(const TextRequest& request,
                          const std::function<void(const std::string&)>& on_text) {
  state_->check_language("run.generate");
  return runs::generate_text(state_->net->language_model(), *state_->tokenizer, request, on_text);
}

Variable Run::hidden(const Variable& inputs) {
  return state_->net ? state_->net->hidden(inputs) : state_->mlp->hidden(inputs);
}

EvalMetrics Run::evaluate(const EvalRequest& request) {
  const EvalData data = runs::on_every_rank(
      *state_->world->group(), [&] { return read_eval_data(state_->folder, request.data); });
  return evaluate(data, request.batch);
}

EvalMetrics Run::evaluate(const EvalData& data, std::int64_t batch) {
  TESSERA_CHECK(batch >= 0, "run.evaluate",
                "batch is {}; give the number of sequences or images at a time, or 0 for that of "
                "training",
                batch);
  const TrainOptions& config = state_->config;
  const std::int64_t rows = batch > 0 ? batch : config.batch;
  std::unique_ptr<Task> task;
  if (state_->net) {
    TESSERA_CHECK(data.sequences != nullptr, "run.evaluate",
                  "{} is a run of {}: it needs sequences", state_->folder, config.model);
    task = std::make_unique<LanguageTask>(
        *state_->world, state_->net->language_model(), *data.sequences, *data.sequences,
        *state_->tokenizer,
        LanguageTaskOptions{.batch = rows,
                            .data_mesh = state_->data_mesh,
                            .micro_batch = batch > 0 ? 0 : config.micro_batch});
  } else {
    TESSERA_CHECK(data.images != nullptr, "run.evaluate", "{} is a run of {}: it needs images",
                  state_->folder, config.model);
    MlpStack& mlp = *state_->mlp;
    task = std::make_unique<ImageTask>(
        *state_->world,
        Classifier{.module = mlp,
                   .forward = [&mlp](const Variable& pixels) { return mlp(pixels); }},
        data.images->train, data.images->test,
        ImageTaskOptions{.batch = rows, .dtype = config.mlp().dtype, .eval_batch = batch});
  }
  const EvalMetrics metrics = task->evaluate();
  if (std::isfinite(metrics.loss)) return metrics;
  // All ranks have the same loss.
  const std::string first = first_bad_tensor(
      module(), [&] { task->evaluate(); }, *state_->world->group());
  throw_error<StateError>("eval",
                          "the loss is {}: {}; the weights of {} cannot be used, train again with "
                          "a lower --lr",
                          std::abs(metrics.loss), first, state_->folder);
}

Run open_run(const std::string& folder, Device device) { return RunOpener(folder).alone(device); }

Run open_run(distributed::World& world, const std::string& folder,
             const ShardedRunOptions& options) {
  // The folder may be missing on one of several hosts.
  return runs::on_every_rank(*world.group(), [&] { return RunOpener(folder); })
      .sharded(world, options);
}

TrainOptions read_run_config(const std::string& folder) {
  if (type_of(folder) != std::filesystem::file_type::directory)
    throw_error<OptionError>(
        kWhere, "there is no folder {}; name one that tessera train --out made", folder);
  const Weights weights = weights_of(folder);
  const std::string path = weights.run + "/" + kConfigFile;
  if (!exists(path))
    throw_error<OptionError>(
        kWhere, "{} has no {}, so it holds no run; name a folder that tessera train --out made",
        folder, kConfigFile);
  const TrainOptions config = runs::read_options(path, model_of(path));
  TESSERA_CHECK_AS(StateError,
                   !weights.checkpoint.empty() || exists(weights.run + "/" + kModelFile), kWhere,
                   "{} has no {} and no complete checkpoint: the run did not end; train again",
                   weights.run, kModelFile);
  TESSERA_CHECK_AS(StateError,
                   !is_language(config) || config.tokenizer == "bytes" ||
                       exists(weights.run + "/" + kTokenizerFile),
                   kWhere, "{} has no {}, with which the run was trained; copy the whole folder",
                   weights.run, kTokenizerFile);
  return config;
}

EvalData read_eval_data(const std::string& folder, const std::string& data) {
  const TrainOptions config = read_run_config(folder);
  const std::string path = data.empty() ? config.data : data;
  if (!is_language(config))
    return {.sequences = nullptr,
            .images = std::make_shared<const data::FashionMnist>(data::read_fashion_mnist(path))};
  const runs::TextData text = runs::load_text(path, tokenizer_name(weights_of(folder).run, config));
  return {.sequences = std::make_shared<const data::PackedSequences>(
              data.empty() ? text.text.validation : runs::whole_text(text.text), config.seq_len),
          .images = nullptr};
}

}  // namespace tessera::models
