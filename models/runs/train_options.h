#pragma once

/// The options of `tessera train`: one struct for all models, and one table for each.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/models/runs/option_table.h"

namespace tessera::distributed {
struct LaunchOptions;
}
namespace tessera::models {
struct MlpOptions;
}

namespace tessera::models::runs {

/// The name of the model that is no language model.
inline constexpr const char* kMlp = "mlp";
/// --resume with the newest checkpoint of --out, if there is one.
inline constexpr const char* kResumeAuto = "auto";

/// How often a run saves a checkpoint. Neither: never.
struct SavePeriod {
  std::int64_t steps = 0;
  double seconds = 0;

  bool never() const { return steps == 0 && seconds == 0; }
};
/// The period of a word: a number of steps, "100", or a time, "30s", "10m", "2h"; "0": never. Nothing
/// for another word.
std::optional<SavePeriod> save_period_of(const std::string& word);

/// Values typed or set by the preset; otherwise the program's defaults. A model ignores members
/// that it has no option for.
struct TrainOptions {
  std::string model;  ///< "mlp", or the name of a family of language models
  std::string preset;

  // Data and files. Paths are absolute.
  std::string config;
  bool print_config = false;
  std::string data;
  std::string tokenizer;  ///< empty: a token file's own, else bytes
  std::string out;        ///< empty: nothing is written

  // Ranks.
  int ranks = 2;  ///< of each host
  std::string launch = "auto";
  std::string device = "cpu";
  std::string cpu_compute = "inline";
  std::string bind = "auto";
  bool cuda_graphs = false;
  bool tf32 = false;
  std::string nccl_buffers = "none";
  bool deterministic = false;
  bool checked = false;
  double timeout = 300;  ///< seconds
  int nnodes = 1;
  int node_rank = 0;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string rdzv_secret_file;
  std::optional<int> foreign_rank;  ///< the rank as which another launcher started this process
  std::string local_addr;

  // How the model is sharded.
  std::string shard = "full";
  std::string mesh;  ///< "4", "2x2"; empty: derived from `shard`
  int tensor_parallel = 1;
  std::string precision = "f32";
  std::string recompute = "none";

  // The model.
  std::vector<std::int64_t> hidden;     ///< mlp
  std::string activation;               ///< mlp
  std::map<std::string, double> sizes;  ///< language models: by option name, "kv-heads"
  std::int64_t seq_len = 0;
  double dropout = 0;

  // Training.
  std::optional<std::int64_t> steps;   ///< either steps
  std::optional<std::int64_t> epochs;  ///< or epochs
  std::int64_t batch = 256;
  std::int64_t micro_batch = 0;
  std::string optimizer = "adamw";
  double lr = 0.1;
  double min_lr = 0;
  std::int64_t warmup = 0;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip_grad = 0;
  std::uint64_t seed = 1;

  // Checkpoints, in the folder of --out.
  std::string save_every;  ///< "100", "10m"; empty: the default of save_period()
  std::int64_t keep = 3;   ///< complete checkpoints that stay; 0: all
  std::string resume;      ///< "auto", or a path; empty: begin at step 1

  // Watching.
  std::int64_t eval_every = 0;
  std::int64_t check_replicas = 0;  ///< steps between comparisons of replicated parameters
  std::int64_t sample_tokens = 200;
  std::string sample_prompt;
  bool trace = false;
  std::int64_t profile = 0;  ///< steps that are profiled
  std::string tensorboard = "on";

  MlpOptions mlp() const;
  distributed::LaunchOptions launch_options() const;
  int world_size() const { return ranks * nnodes; }
  /// Whether this process starts rank 0, so that it writes what a run leaves.
  bool starts_first_rank() const { return foreign_rank ? *foreign_rank == 0 : node_rank == 0; }
  const char* kind_of_ranks() const;  ///< "threads" or "processes"
  /// Of --save-every; by default 10 minutes, and never on several hosts, which may have no file system in
  /// common. Never without --out.
  SavePeriod save_period() const;
};

/// The defaults for a model under one of its presets; an empty name means its first preset.
TrainOptions default_options(const std::string& model, const std::string& preset = "");
std::vector<std::string> preset_names(const std::string& model);

/// The options of `options.model`, bound to `options`.
void fill_table(OptionTable& table, TrainOptions& options);

/// Call it after parsing. Sets the preset's values, then those of the file of --config, then those
/// of the command line, then the world of another launcher (distributed/launch/foreign_launcher.h).
/// Throws OptionError for an invalid configuration, for options that do not fit together, and for a
/// launcher's variables that are wrong or contradict the command line.
void complete_options(TrainOptions& options, OptionTable& table);

/// The options in a configuration of `model`, such as config.json; members that it lacks have the
/// preset's values. Throws as read_config (config_file.h).
TrainOptions read_options(const std::string& path, const std::string& model);

/// config.json: everything needed to repeat the run. It can be passed to --config.
std::string config_text(const TrainOptions& options);

}  // namespace tessera::models::runs
