#include "tessera/tools/program/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tessera/models/runs/language_family.h"
#include "tessera/models/runs/words.h"
#include "tessera/tensor/nearest_name.h"
#include "tessera/tools/program/doctor/doctor_command.h"
#include "tessera/tools/program/options/command_parser.h"
#include "tessera/tools/program/options/completion.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/options/preset_list.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

// The options object of a command, and the table bound to it.
template <class Options>
struct Command {
  Options options;
  OptionTable table;
};

class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  int run(int argc, char** argv);

 private:
  template <class Options>
  void add(Command<Options>& command, const std::string& path, const std::string& description) {
    fill_table(command.table, command.options);
    parser_.add(path, description, command.table);
  }
  void add_model(const std::string& name, const std::string& description);
  std::vector<std::string> model_names() const;
  int run_train();
  int run_model(Command<TrainOptions>& command, int argc, char** argv);
  int run_completion();

  CommandParser parser_;
  Command<ListOptions> train_;
  std::deque<Command<TrainOptions>> models_;
  Command<GenerateOptions> generate_;
  Command<EvalOptions> eval_;
  Command<TokenizeCommandOptions> tokenize_;
  std::string inspected_;
  Command<ConvertOptions> convert_;
  Command<DoctorOptions> doctor_;
  std::string shell_;
};

CommandLine::CommandLine() {
  add(train_, "train", "Train a model.");
  add_model("mlp", "A stack of fully connected layers, on Fashion-MNIST.");
  for (const std::string& name : language_family_names())
    add_model(name, language_family(name).description());
  add(generate_, "generate", "Write text with a language model that was trained.");
  add(eval_, "eval", "Measure the loss of a model that was trained.");
  add(tokenize_, "tokenize", "Learn a tokenizer from text, and write text as a token file.");
  const Argument path{.name = "path",
                      .value = "PATH",
                      .meaning = "a checkpoint, or a run, of which the newest is taken"};
  parser_.add("inspect", "Show what a checkpoint or a safetensors file holds, and check it.", path,
              inspected_);
  fill_table(convert_.table, convert_.options);
  parser_.add("convert", "Write the model of a checkpoint as one safetensors file.", path,
              convert_.options.path, convert_.table);
  add(doctor_, "doctor", "Examine the machine: what would go wrong in a run.");
  parser_.add("completion", "Print what a shell needs to complete tessera.",
              {.name = "shell", .value = "bash|zsh", .meaning = "bash or zsh"}, shell_);
}

void CommandLine::add_model(const std::string& name, const std::string& description) {
  Command<TrainOptions>& command = models_.emplace_back();
  command.options = default_options(name);
  add(command, "train " + name, description);
}

std::vector<std::string> CommandLine::model_names() const {
  std::vector<std::string> names;
  for (const Command<TrainOptions>& command : models_) names.push_back(command.options.model);
  return names;
}

int CommandLine::run_train() {
  if (!train_.options.list)
    throw CannotStart(fmt::format("a model is needed: {}; see tessera train --help",
                                  joined(model_names(), ", ")));
  write_output(preset_list(train_.options));
  return kDone;
}

int CommandLine::run_model(Command<TrainOptions>& command, int argc, char** argv) {
  const std::string& model = command.options.model;
  for (const std::string& name : train_.table.names()) {
    if (!train_.table.typed(name)) continue;
    throw CannotStart(
        command.table.find(name) != nullptr
            ? fmt::format(
                  "--{} stands before the model; write it behind: tessera train {} --{} ...", name,
                  model, name)
            : fmt::format("--{} is about all models; leave {} out: tessera train --{}", name, model,
                          name));
  }
  complete_options(command.options, command.table);
  if (!command.options.print_config) return train(command.options, argc, argv);
  write_output(config_text(command.options) + "\n");
  return kDone;
}

int CommandLine::run_completion() {
  const auto& shells = completion_shells();
  if (std::find(shells.begin(), shells.end(), shell_) == shells.end())
    throw CannotStart(fmt::format("completion needs a shell: {}{}", joined(shells, " or "),
                                  did_you_mean(shell_, shells)));
  write_output(completion_script(parser_.commands(), shell_));
  return kDone;
}

int CommandLine::run(int argc, char** argv) {
  const std::optional<std::string> path = parser_.parse(argc, argv);
  if (!path) return kDone;
  for (OptionTable* table : {&train_.table, &generate_.table, &eval_.table, &tokenize_.table,
                             &convert_.table, &doctor_.table})
    table->apply_typed();
  for (Command<TrainOptions>& command : models_)
    if (*path == "train " + command.options.model) return run_model(command, argc, argv);
  if (*path == "train") return run_train();
  if (*path == "generate") return generate(generate_.options, argc, argv);
  if (*path == "eval") return evaluate(eval_.options, argc, argv);
  if (*path == "tokenize") return tokenize_text(tokenize_.options);
  if (*path == "inspect") return inspect(absolute_path(inspected_));
  if (*path == "convert") {
    convert_.options.path = absolute_path(convert_.options.path);
    return convert(convert_.options);
  }
  if (*path == "doctor") return examine_machine(doctor_.options);
  return run_completion();
}

}  // namespace

int run_command_line(int argc, char** argv) { return CommandLine().run(argc, argv); }

}  // namespace tessera::tools
