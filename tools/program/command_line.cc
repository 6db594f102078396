#include "tessera/tools/program/command_line.h"

#include <fmt/format.h>

#include <cstdio>

#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/completion.h"
#include "tessera/tools/program/help_format.h"
#include "tessera/tools/program/language_family.h"
#include "tessera/tools/program/nearest_name.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {
namespace {

std::vector<std::string> subcommand_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* next : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(next->get_name());
  return names;
}

// The word after the parsed commands that names none, if there is one: what is wrong with a command
// line that lacks a command.
std::string unknown_word(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-")) return "";
    const auto next =
        command->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (next.empty()) return subcommand_names(*command).empty() ? "" : word;
    command = next.front();
  }
  return "";
}

const CLI::App& deepest_parsed(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

// What was probably meant, else where to look.
std::string advice(const std::string& near, const std::string& command_name) {
  return near.empty() ? fmt::format("; see {} --help", command_name) : near;
}

std::string unknown_option(const CLI::App& command, const std::string& word,
                           const std::string& command_name) {
  const std::string option = word.substr(0, word.find('='));
  const std::string bare = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  return fmt::format("unknown option {}{}", option,
                     advice(did_you_mean(bare, option_names(command), "--"), command_name));
}

}  // namespace

template <class Options>
CLI::App* CommandLine::add_command(Command<Options>& command, CLI::App& above,
                                   const std::string& name, const std::string& description) {
  command.app = above.add_subcommand(name, description);
  command.app->group(&above == &app_ ? "Commands" : "Models");
  fill_table(command.table, command.options);
  command.table.add_to(*command.app);
  return command.app;
}

CommandLine::CommandLine() : app_("Tessera: deep learning with sharding built in.", "tessera") {
  app_.formatter(std::make_shared<HelpFormat>());
  app_.set_help_flag("--help", "Print this help and end.");
  app_.set_version_flag("--version", std::string("tessera ") + kVersion, "Print the version.");
  app_.require_subcommand(1);
  add_train();
  add_command(generate_, app_, "generate", "Write text with a language model that was trained.");
  add_command(eval_, app_, "eval", "Measure a language model that was trained on a text.");
  add_command(tokenize_, app_, "tokenize",
              "Learn a tokenizer from text, and write text as a token file.");
  completion_ = app_.add_subcommand("completion", "Print what a shell needs to complete tessera.");
  completion_->group("Commands");
  completion_->add_option("shell", shell_, "bash or zsh")->option_text("bash|zsh");
}

void CommandLine::add_train() {
  CLI::App* train = add_command(train_, app_, "train", "Train a model.");
  train->require_subcommand(0, 1);
  std::vector<std::pair<std::string, std::string>> models = {
      {"mlp", "A stack of fully connected layers, on Fashion-MNIST."}};
  for (const std::string& name : language_family_names())
    models.emplace_back(name, language_family(name).description());
  for (const auto& [name, description] : models) {
    auto command = std::make_unique<Command<TrainOptions>>();
    command->options = default_options(name);
    add_command(*command, *train, name, description);
    models_.push_back(std::move(command));
  }
}

const OptionTable& CommandLine::train_table(const std::string& model) const {
  for (const auto& command : models_)
    if (command->options.model == model) return command->table;
  throw CannotStart(fmt::format("there is no model {}", model));
}

std::string CommandLine::command_name() const {
  std::string name = app_.get_name();
  for (const CLI::App* command = &app_; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return name;
}

void CommandLine::explain(const CLI::ParseError& error, int argc, char** argv) const {
  const CLI::App& command = deepest_parsed(app_);
  const std::vector<std::string> known = subcommand_names(command);
  const std::string kind = &command == train_.app ? "model" : "command";
  if (const std::string word = unknown_word(app_, argc, argv); !word.empty())
    throw CannotStart(fmt::format("unknown {} \"{}\"; there is: {}{}", kind, word,
                                  fmt::join(known, ", "),
                                  advice(did_you_mean(word, known), command_name())));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::string word = app_.remaining(true).front();
    if (word.starts_with("-")) throw CannotStart(unknown_option(command, word, command_name()));
    throw CannotStart(fmt::format("unknown argument {}; see {} --help", word, command_name()));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    throw CannotStart(fmt::format("a {} is needed: {}; see {} --help", kind, fmt::join(known, ", "),
                                  command_name()));
  const std::string what = error.what();
  throw CannotStart(what.ends_with("?") ? what : what + advice("", command_name()));
}

int CommandLine::run_train(int argc, char** argv) {
  train_.table.apply_typed();
  for (const auto& command : models_) {
    if (!command->app->parsed()) continue;
    for (const std::string& name : train_.table.names())
      if (train_.table.typed(name))
        throw CannotStart(fmt::format("--{} stands before the model; write it behind: {} --{} ...",
                                      name, command_name(), name));
    complete_options(command->options, command->table);
    if (!command->options.print_config) return train(command->options, argc, argv);
    fmt::print("{}\n", to_json(command->options).dump(2));
    return kDone;
  }
  if (train_.options.list) {
    fmt::print("{}", preset_list(train_.options));
    return kDone;
  }
  throw CannotStart(fmt::format("a model is needed: {}; see tessera train --help",
                                fmt::join(subcommand_names(*train_.app), ", ")));
}

int CommandLine::run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_.exit(error);  // --help and --version
    explain(error, argc, argv);
  }
  if (train_.app->parsed()) return run_train(argc, argv);
  generate_.table.apply_typed();
  eval_.table.apply_typed();
  tokenize_.table.apply_typed();
  if (generate_.app->parsed()) return generate(generate_.options, argc, argv);
  if (eval_.app->parsed()) return evaluate(eval_.options, argc, argv);
  if (tokenize_.app->parsed()) return tokenize_text(tokenize_.options);
  const auto& shells = completion_shells();
  if (std::find(shells.begin(), shells.end(), shell_) == shells.end())
    throw CannotStart(fmt::format("completion needs a shell: {}{}", fmt::join(shells, " or "),
                                  did_you_mean(shell_, shells)));
  fmt::print("{}", completion_script(app_, shell_));
  return kDone;
}

}  // namespace tessera::tools
