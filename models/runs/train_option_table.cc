// The rows of the table: one function for each heading of --help.

#include <fmt/format.h>

#include <limits>

#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/runs/language_family.h"
#include "tessera/models/runs/mesh_plan.h"
#include "tessera/models/runs/train_options.h"

namespace tessera::models::runs {
namespace {

constexpr WholeRange kRanks = {.least = 1, .most = 1024};
constexpr WholeRange kCount = {.least = 1, .most = 1'000'000'000};
constexpr WholeRange kCountOrNone = {.least = 0, .most = 1'000'000'000};
constexpr WholeRange kFeatures = {.least = 1, .most = 1 << 20};
constexpr std::uint64_t kMostSeed = std::numeric_limits<std::uint64_t>::max();

bool is_language(const TrainOptions& options) { return options.model != kMlp; }

void add_files(OptionTable& table, TrainOptions& options) {
  table.group("Data and files");
  table
      .path("config", options.config,
            "JSON file with these options, such as the config.json of a run; the command line wins "
            "over it. Relative paths in it are relative to where the program is started. A regular "
            "file: every rank process reads it again")
      .in_config = false;
  table
      .flag("print-config", options.print_config,
            "print the options of this run as JSON for --config, and end")
      .in_config = false;
  if (is_language(options)) {
    table.path("data", options.data,
               "text to learn from: a file, a folder, or a token file of tessera tokenize; that is "
               "best for much text, as ranks map it instead of tokenizing for themselves");
    Option& tokenizer = table.path("tokenizer", options.tokenizer,
                                   "bytes, or a SentencePiece model; of a token file, the one that "
                                   "made it");
    tokenizer.value = "bytes|PATH";
    tokenizer.unset = "bytes";
    tokenizer.set = [&options](const std::string& word) {
      options.tokenizer = word == "bytes" ? word : absolute_path(word);
    };
  } else {
    table.path("data", options.data, "folder of the four Fashion-MNIST files");
  }
  table.path(
      "out", options.out,
      "folder for everything that a run leaves: config.json, metrics.jsonl, "
      "model.safetensors, report.html, checkpoints, ...; made if missing, an earlier run's are "
      "replaced, but not its checkpoints");
}

void add_ranks(OptionTable& table, TrainOptions& options) {
  table.group("Ranks");
  table.whole("ranks", options.ranks, kRanks, "ranks that train together, on each host");
  table.choice(
      "launch", options.launch, {"auto", "threads", "processes"},
      "ranks are threads or processes; auto: processes, or the ranks that torchrun, srun or "
      "mpirun has started");
  table.choice(
      "bind", options.bind, {"auto", "none", "cores"},
      "cores: each rank process has cores of its own, if there are enough; auto: cores with "
      "--device cpu");
  table.choice("device", options.device, {"cpu", "cuda"},
               "where ranks compute: cuda gives each rank a GPU, which threads may share");
  table.flag("cuda-graphs", options.cuda_graphs,
             "with --device cuda: record a step as a CUDA graph, and replay it in the others");
  table.flag("tf32", options.tf32,
             "with --device cuda: products of f32 round their operands to TF32, for tensor cores");
  table.choice("nccl-buffers", options.nccl_buffers, {"none", "registered", "symmetric"},
               "with a GPU for each rank: buffers of NCCL's allocator for collectives");
  table.choice("cpu-compute", options.cpu_compute, {"inline", "queued"},
               "inline: operations run at once; queued: on a stream of their own");
  table.flag(
      "deterministic", options.deterministic,
      "equal bits in equal runs, also where that takes longer: attention in 16 bits on a GPU");
  table.flag("checked", options.checked, "ranks compare each collective before its data moves");
  table.number("timeout", options.timeout,
               number_check("a number of seconds from 0.001 to 1e6",
                            [](double value) { return value >= 0.001 && value <= 1e6; }),
               "seconds that a rank waits for another");
  table.group("Several hosts");
  table.whole("nnodes", options.nnodes, kRanks, "hosts that train together");
  table.whole("node-rank", options.node_rank, kCountOrNone, "number of this host, from 0")
      .in_config = false;
  table.text("rdzv-endpoint", options.rdzv_endpoint,
             "address at which the hosts find each other: HOST:PORT of host 0");
  table.text("rdzv-id", options.rdzv_id, "tells apart runs of several hosts that have one secret");
  table
      .text("rdzv-secret-file", options.rdzv_secret_file,
            "file with the secret of a run of several hosts; without it TESSERA_SECRET")
      .in_config = false;
  table
      .text("local-addr", options.local_addr,
            "interface, name or address that this host's ranks listen on")
      .in_config = false;
}

void add_sharding(OptionTable& table, TrainOptions& options) {
  table.group("Sharding and precision");
  table.choice(
      "shard", options.shard, shard_mode_names(),
      "what is sharded: full: parameters, gradients, optimizer state; grad: the same, but "
      "parameters are kept from forward to backward; replicate: nothing; hybrid: full inside "
      "groups that replicate each other");
  Option& mesh =
      table.text("mesh", options.mesh,
                 "ranks that share a batch: 4, or for hybrid 2x4, groups x ranks of one");
  mesh.value = "MESH";
  mesh.unset = "all ranks";
  mesh.problem = mesh_problem;
  if (is_language(options))
    table.whole("tensor-parallel", options.tensor_parallel, kRanks,
                "ranks that share every layer; --ranks is a multiple of it");
  table.choice("precision", options.precision, precision_names(),
               "bf16 and f16 compute in 16 bits, and keep and update parameters in f32");
  if (is_language(options))
    table.choice("recompute", options.recompute, recompute_mode_names(),
                 "what backward computes again instead of keeping it: full: every block; "
                 "selective: its feed-forward part");
}

void add_mlp(OptionTable& table, TrainOptions& options) {
  table.group("Model");
  table.choice("preset", options.preset, preset_names(options.model),
               "hidden layers, all with GELU");
  table.list("hidden", options.hidden, kFeatures, "features of the hidden layers").of_preset = true;
  table.choice("activation", options.activation, {"gelu", "relu"}, "between the layers").of_preset =
      true;
}

void add_language_model(OptionTable& table, TrainOptions& options) {
  table.group("Model");
  table.choice("preset", options.preset, preset_names(options.model),
               "sizes of the model, and how it is trained; see tessera train --list");
  for (const SizeOption& size : language_family(options.model).sizes()) {
    Option option{.name = size.name, .group = {}, .value = "N", .meaning = size.meaning};
    option.kind = JsonKind::kNumber;
    option.of_preset = true;
    if (!size.is_whole) option.value = "X";
    option.problem = size.is_whole ? whole_number(size.least, kFeatures.most) : not_negative();
    option.set = [&options, name = size.name](const std::string& word) {
      options.sizes[name] = std::stod(word);
    };
    option.get = [&options, size] {
      const double value = options.sizes.at(size.name);
      return size.is_whole ? JsonValue(static_cast<std::int64_t>(value)) : JsonValue(value);
    };
    table.add(std::move(option));
  }
  table.whole("seq-len", options.seq_len, kFeatures, "tokens of a sequence").of_preset = true;
  table.number("dropout", options.dropout, fraction(), "part of the activations that is dropped")
      .of_preset = true;
}

void add_length(OptionTable& table, TrainOptions& options) {
  const bool language = is_language(options);
  const std::string passes = language ? "passes over the training text, instead of --steps"
                                      : "passes over the training images";
  const std::string steps =
      language ? "steps of the whole run" : "steps of the whole run, instead of --epochs";
  Option& epochs = table.whole("epochs", options.epochs, kCount, passes);
  Option& length = table.whole("steps", options.steps, kCount, steps);
  length.excludes = "epochs";
  length.of_preset = language;
  // Setting one removes the other.
  epochs.set = [&options, set = epochs.set](const std::string& word) {
    set(word);
    options.steps.reset();
  };
  length.set = [&options, set = length.set](const std::string& word) {
    set(word);
    options.epochs.reset();
  };
}

void add_mlp_training(OptionTable& table, TrainOptions& options) {
  table.group("Training");
  add_length(table, options);
  table.whole("batch", options.batch, kCount, "images of a step, over all ranks");
  table.number("lr", options.lr, above_zero(),
               "largest learning rate: a rise over 5 % of the steps, then half a cosine to 0");
  table.number("momentum", options.momentum, fraction(), "of SGD");
  table.number("weight-decay", options.weight_decay, not_negative(), "of SGD");
  table.whole("seed", options.seed, {.least = 0, .most = kMostSeed},
              "of initial values and order of the images");
}

void add_language_training(OptionTable& table, TrainOptions& options) {
  table.group("Training");
  add_length(table, options);
  table.whole("batch", options.batch, kCount, "sequences of a step, over all ranks").of_preset =
      true;
  table.whole("micro-batch", options.micro_batch, kCountOrNone,
              "sequences that a rank computes at a time; 0: all of its share");
  table.choice("optimizer", options.optimizer, {"adamw", "sgd"}, "what updates the parameters");
  table
      .number("lr", options.lr, above_zero(),
              "largest learning rate: reached after --warmup steps, then half a cosine to --min-lr")
      .of_preset = true;
  table.number("min-lr", options.min_lr, not_negative(), "learning rate at the end").of_preset =
      true;
  table.whole("warmup", options.warmup, kCountOrNone, "steps in which the learning rate rises")
      .of_preset = true;
  table
      .number("weight-decay", options.weight_decay, not_negative(),
              "of matrices; biases and norms have none")
      .of_preset = true;
  table.number("beta1", options.beta1, fraction(), "of AdamW; the momentum of SGD").of_preset =
      true;
  table.number("beta2", options.beta2, fraction(), "of AdamW").of_preset = true;
  table
      .number("clip-grad", options.clip_grad, not_negative(),
              "largest norm of all gradients together; 0: no clipping")
      .of_preset = true;
  table.whole("seed", options.seed, {.least = 0, .most = kMostSeed},
              "of initial values, order of the text, dropout and the sample");
}

void add_checkpoints(OptionTable& table, TrainOptions& options) {
  table.group("Checkpoints");
  Option& save =
      table.text("save-every", options.save_every,
                 "when a checkpoint is saved into --out: after so many steps (and after the "
                 "last), or after a time as 10m, 30s or 2h; 0: never");
  save.value = "N|TIME";
  save.unset = "10m; with several hosts 0";
  save.problem = [](const std::string& word) {
    return save_period_of(word) ? std::string()
                                : fmt::format("{} is not a number of steps or a time as 10m", word);
  };
  table.whole("keep", options.keep, kCountOrNone,
              "checkpoints that stay when a newer one is complete; 0: all");
  Option& resume =
      table.text("resume", options.resume,
                 "go on from a checkpoint: auto: the newest complete one of --out, or from "
                 "the start if there is none; else a checkpoint, or the newest of a run");
  resume.value = "auto|PATH";
  resume.in_config = false;
  resume.set = [&options](const std::string& word) {
    options.resume = word == kResumeAuto ? word : absolute_path(word);
  };
}

void add_watching(OptionTable& table, TrainOptions& options) {
  table.group("Watching");
  table.whole("eval-every", options.eval_every, kCountOrNone,
              "steps between evaluations; 0: only at the end");
  table.whole(
      "check-replicas", options.check_replicas, kCountOrNone,
      "steps between comparisons of parameters that several ranks hold, bit by bit: finds a rank "
      "whose memory or arithmetic is wrong; 0: never");
  if (is_language(options)) {
    table.whole("sample-tokens", options.sample_tokens, {.least = 0, .most = 1'000'000},
                "tokens of the text that is generated at the end");
    Option& prompt =
        table.text("sample-prompt", options.sample_prompt, "what that text begins with");
    prompt.unset = "the beginning of a document";
  }
  table.flag("trace", options.trace, "write trace.json, for ui.perfetto.dev, into --out");
  table.whole(
      "profile", options.profile, kCountOrNone,
      "steps to measure by operation and module, after two for warm-up: prints a table, and "
      "writes profile.txt into --out; 0: none");
  table.choice("tensorboard", options.tensorboard, {"on", "off"},
               "event files for TensorBoard in --out");
}

}  // namespace

void fill_table(OptionTable& table, TrainOptions& options) {
  add_files(table, options);
  add_ranks(table, options);
  add_sharding(table, options);
  if (is_language(options)) {
    add_language_model(table, options);
    add_language_training(table, options);
  } else {
    add_mlp(table, options);
    add_mlp_training(table, options);
  }
  add_checkpoints(table, options);
  add_watching(table, options);
}

}  // namespace tessera::models::runs
