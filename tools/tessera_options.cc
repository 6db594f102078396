#include "tessera/tools/tessera_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tessera/models/data/fashion_mnist.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tools/tessera_option_checks.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostRanks = 1024;
constexpr std::uint64_t kMostSteps = 1'000'000'000;
constexpr std::uint64_t kMostFeatures = 1 << 20;

// Keys of config.json that are no options: they say what wrote it, and must fit this program.
constexpr const char* kModelKey = "model";
constexpr const char* kVersionKey = "tessera";
constexpr const char* kIsaKey = "instruction_set";

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const models::MlpPreset& preset : models::mlp_presets()) names.emplace_back(preset.name);
  return names;
}

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

// A JSON value as the words that the command line would have.
std::vector<std::string> words_of(const Json& value) {
  std::vector<std::string> words;
  if (value.is_array()) {
    for (const Json& entry : value)
      for (const std::string& word : words_of(entry)) words.push_back(word);
  } else if (value.is_string()) {
    words.push_back(value.get<std::string>());
  } else if (value.is_number() || value.is_boolean()) {
    words.push_back(value.dump());
  }
  return words;
}

Json read_json(const std::string& path) {
  // Every rank process reads it again: what can be read only once, such as a pipe, will not do.
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw CannotStart(fmt::format("{} is not a regular file; --config needs one", path));
  std::ifstream file(path);
  if (!file)
    throw CannotStart(fmt::format("{} cannot be read; check the path after --config", path));
  try {
    Json json = Json::parse(file);
    if (json.is_object()) return json;
  } catch (const Json::parse_error& error) {
    throw CannotStart(fmt::format("{} is not JSON from byte {} on; correct it", path, error.byte));
  }
  throw CannotStart(
      fmt::format("{} is not a JSON object; expected {{\"option\": value, ...}}", path));
}

// One key of a --config file; true when it is one of those that only describe.
bool is_description(const std::string& path, const std::string& key, const Json& value) {
  if (key == kModelKey && value != "mlp")
    throw CannotStart(fmt::format("{} is for the model {}, not \"mlp\"", path, value.dump()));
  return key == kModelKey || key == kVersionKey || key == kIsaKey;
}

void apply_config(CLI::App& command, const std::string& path) {
  const bool length_typed = command.count("--steps") + command.count("--epochs") > 0;
  const Json config = read_json(path);
  if (config.contains("steps") && config.contains("epochs"))
    throw CannotStart(fmt::format("{} has both \"steps\" and \"epochs\"; leave one out", path));
  for (const auto& [key, value] : config.items()) {
    if (is_description(path, key, value)) continue;
    CLI::Option* option = command.get_option_no_throw(option_name(key));
    if (option == nullptr || key == "config" || key == "help")
      throw CannotStart(
          fmt::format("{} has the unknown key \"{}\"; see tessera train mlp --help", path, key));
    const bool length = key == "steps" || key == "epochs";
    if (option->count() > 0 || (length && length_typed)) continue;
    std::vector<std::string> words = words_of(value);
    if (key == "hidden" && !words.empty()) words = {fmt::format("{}", fmt::join(words, ","))};
    const bool fits = words.size() == 1;
    if (!fits) throw CannotStart(fmt::format("{}: \"{}\" cannot be {}", path, key, value.dump()));
    try {
      option->add_result(words);
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw CannotStart(fmt::format("{}: {}", path, error.what()));
    }
  }
}

// Under `bazel run` the program starts elsewhere; what the user typed is relative to where the user
// is.
std::string absolute(const std::string& path) {
  if (path.empty()) return path;
  const char* home = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base =
      home != nullptr ? std::filesystem::path(home) : std::filesystem::current_path();
  return (base / path).lexically_normal().string();
}

}  // namespace

TrainMlpOptions::TrainMlpOptions()
    : data(models::data::kFashionMnistFolder), preset(models::mlp_presets().front().name) {}

models::MlpOptions TrainMlpOptions::model() const {
  const models::MlpPreset& named = models::mlp_preset(preset);
  return {
      .in = models::data::kImagePixels,
      .hidden = hidden.empty() ? named.hidden : hidden,
      .classes = models::data::kImageClasses,
      .activation = activation.empty() ? named.activation : models::activation_named(activation),
      .dtype = precision == "f64" ? DType::kF64 : DType::kF32};
}

distributed::LaunchOptions TrainMlpOptions::launch_options() const {
  using distributed::LaunchMode;
  return {
      .ranks = ranks,
      .mode = launch == "threads" ? LaunchMode::kThreads : LaunchMode::kProcesses,
      .device = kCpu,
      .cpu_compute = cpu_compute == "queued" ? StreamKind::kQueued : StreamKind::kInline,
      .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(timeout * 1000))),
      .checked = checked};
}

namespace {

void add_run_options(CLI::App& command, TrainMlpOptions& options) {
  command.add_option(
      "--config", options.config,
      "JSON file with these options, as config.json of a run; the command line wins");
  command.add_option("--data", options.data, "folder of the Fashion-MNIST files")
      ->capture_default_str();
  command.add_option(
      "--out", options.out,
      "folder for config.json and metrics.jsonl, made if missing; an earlier run's are "
      "replaced [default: none, nothing is written]");
  command.add_option("--ranks", options.ranks, "ranks that train together")
      ->check(whole_number(1, kMostRanks))
      ->capture_default_str();
  command.add_option("--launch", options.launch, "what a rank is: threads | processes")
      ->check(CLI::IsMember({"threads", "processes"}))
      ->capture_default_str();
  command.add_option("--device", options.device, "cpu | cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--cpu-compute", options.cpu_compute,
                  "inline: operations run at once; queued: on a stream of their own")
      ->check(CLI::IsMember({"inline", "queued"}))
      ->capture_default_str();
  command.add_flag("--deterministic", options.deterministic,
                   "refuse operations that may give other bits each time");
  command.add_flag("--checked", options.checked,
                   "ranks compare each collective before its data moves");
  command.add_option("--timeout", options.timeout, "seconds that a rank waits for another")
      ->check(number_check("a number of seconds from 0.001 to 1e6",
                           [](double value) { return value >= 0.001 && value <= 1e6; }))
      ->capture_default_str();
}

void add_model_options(CLI::App& command, TrainMlpOptions& options) {
  command
      .add_option("--preset", options.preset,
                  fmt::format("model: {}", fmt::join(preset_names(), " | ")))
      ->check(CLI::IsMember(preset_names()))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--hidden",
          [&options](const std::string& list) {
            options.hidden.clear();
            for (const std::string& part : parts_of(list))
              options.hidden.push_back(std::stoll(part));
          },
          "features of the hidden layers, as 512,256 [default: the preset's]")
      ->check(whole_numbers(1, kMostFeatures));
  command.add_option("--activation", options.activation, "gelu | relu [default: the preset's]")
      ->check(CLI::IsMember({"gelu", "relu"}));
  command.add_option("--precision", options.precision, "f32 | f64")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
}

void add_training_options(CLI::App& command, TrainMlpOptions& options) {
  CLI::Option* epochs =
      command.add_option("--epochs", options.epochs, "passes over the training images");
  epochs->check(whole_number(1, kMostSteps))->capture_default_str();
  command.add_option("--steps", options.steps, "steps of the whole run, instead of --epochs")
      ->check(whole_number(1, kMostSteps))
      ->excludes(epochs);
  command.add_option("--batch", options.batch, "images of a step, over all ranks")
      ->check(whole_number(1, kMostSteps))
      ->capture_default_str();
  command
      .add_option("--lr", options.lr,
                  "largest learning rate: a rise over 5 % of the steps, then half a cosine to 0")
      ->check(above_zero())
      ->capture_default_str();
  command.add_option("--momentum", options.momentum, "of SGD")
      ->check(fraction())
      ->capture_default_str();
  command.add_option("--weight-decay", options.weight_decay, "of SGD")
      ->check(not_negative())
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of initial values and order of the images")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
}

}  // namespace

void add_options(CLI::App& command, TrainMlpOptions& options) {
  add_run_options(command, options);
  add_model_options(command, options);
  add_training_options(command, options);
}

void complete_options(CLI::App& command, TrainMlpOptions& options) {
  if (!options.config.empty()) apply_config(command, absolute(options.config));
  options.data = absolute(options.data);
  options.out = absolute(options.out);
}

Json to_json(const TrainMlpOptions& options) {
  const models::MlpOptions model = options.model();
  Json json = {{kVersionKey, kVersion},
               {kIsaKey, cpu_isa_name(cpu_isa())},
               {kModelKey, "mlp"},
               {"data", options.data},
               {"ranks", options.ranks},
               {"launch", options.launch},
               {"device", options.device},
               {"cpu_compute", options.cpu_compute},
               {"deterministic", options.deterministic},
               {"checked", options.checked},
               {"timeout", options.timeout},
               {"preset", options.preset},
               {"hidden", model.hidden},
               {"activation", models::activation_name(model.activation)},
               {"precision", options.precision}};
  if (options.steps)
    json["steps"] = *options.steps;
  else
    json["epochs"] = options.epochs;
  json["batch"] = options.batch;
  json["lr"] = options.lr;
  json["momentum"] = options.momentum;
  json["weight_decay"] = options.weight_decay;
  json["seed"] = options.seed;
  return json;
}

}  // namespace tessera::tools
