#include "tessera/tools/program/options/command_parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/words.h"
#include "tessera/tensor/nearest_name.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/options/texts.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

// True for `tessera train`, whose subcommands are models.
bool has_models(const CLI::App& command) { return command.get_name() == "train"; }

std::vector<const CLI::App*> commands_below(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> names_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* next : commands_below(command)) names.push_back(next->get_name());
  return names;
}

// The layout of --help.
class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { label("OPTIONS", "options"); }
  std::string make_group(std::string heading, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = heading + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, is_positional);
    return text;
  }
  std::string make_option(const CLI::Option* option, bool) const override {
    std::string left = option->get_name();
    if (!option->get_option_text().empty()) left += " " + option->get_option_text();
    const std::string value = option->get_default_str();
    return two_columns(left, option->get_description() + (value.empty() ? "" : " [" + value + "]"));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return two_columns(command->get_name(), command->get_description());
  }
  std::string make_usage(const CLI::App* command, std::string name) const override {
    if (name.empty()) name = command->get_name();
    const std::string word = commands_below(*command).empty() ? "" : " COMMAND";
    std::string arguments;
    for (const CLI::Option* option : command->get_options())
      if (option->get_positional()) arguments += " " + option->get_option_text();
    return "\nusage: " + name + word + arguments + " [options]\n\n";
  }
  std::string make_description(const CLI::App* command) const override {
    return paragraph(command->get_description());
  }
};

void add_option(CLI::App& command, const Option& option, OptionTable& table) {
  const std::string dashed = "--" + option.name;
  CLI::Option* added = nullptr;
  if (option.value.empty()) {
    added = command.add_flag_function(
        dashed,
        [&table, name = option.name](std::int64_t count) {
          table.keep_typed(name, count > 0 ? "true" : "false");
        },
        option.meaning);
  } else {
    added = command.add_option_function<std::string>(
        dashed,
        [&table, name = option.name](const std::string& word) { table.keep_typed(name, word); },
        option.meaning);
    added->check(
        CLI::Validator([check = option.problem](std::string& word) { return check(word); }, ""));
    added->option_text(option.value)->take_last();  // of a repeated option the last counts
  }
  added->group(option.group)->default_str(option.default_text());
  if (CLI::Option* other = command.get_option_no_throw("--" + option.excludes))
    added->excludes(other);
}

void collect(const CLI::App& command, const std::string& above,
             std::vector<CompletedCommand>& found) {
  CompletedCommand entry{
      .path = above + command.get_name(), .below = names_below(command), .options = {}};
  for (const CLI::Option* option : command.get_options()) {
    const std::string value = option->get_option_text();
    if (option->get_positional()) entry.options.push_back({.name = "", .value = value});
    for (const std::string& name : option->get_lnames())
      entry.options.push_back({.name = "--" + name, .value = value});
  }
  found.push_back(entry);
  for (const CLI::App* next : commands_below(command)) collect(*next, entry.path + " ", found);
}

// ---- the words that were typed ----

// The parsed commands, from `app` to the innermost.
std::vector<const CLI::App*> parsed_commands(const CLI::App& app) {
  std::vector<const CLI::App*> commands = {&app};
  while (!commands.back()->get_subcommands().empty())
    commands.push_back(commands.back()->get_subcommands().front());
  return commands;
}

// The first word after the parsed commands that is not a command, if any: the error in a command
// line without a command.
std::string unknown_word(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-")) return "";
    const auto below = commands_below(*command);
    const auto next = std::find_if(below.begin(), below.end(),
                                   [&](const CLI::App* each) { return each->get_name() == word; });
    if (next == below.end()) return below.empty() ? "" : word;
    command = *next;
  }
  return "";
}

// Suggests the closest name, or --help.
std::string advice(const std::string& near, const std::string& command_name) {
  return near.empty() ? fmt::format("; see {} --help", command_name) : near;
}

std::string unknown_option(const CLI::App& command, const std::string& word,
                           const std::string& command_name) {
  const std::string option = word.substr(0, word.find('='));
  const std::string bare = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::vector<std::string> known;
  for (const CLI::Option* each : command.get_options())
    for (const std::string& name : each->get_lnames()) known.push_back(name);
  if (std::find(known.begin(), known.end(), bare) != known.end())
    return fmt::format("{} stands before its command; write it behind: {} {} ...", option,
                       command_name, option);
  return fmt::format("unknown option {}{}", option,
                     advice(did_you_mean(bare, known, "--"), command_name));
}

[[noreturn]] void explain(const CLI::App& app, const CLI::ParseError& error, int argc,
                          char** argv) {
  const std::vector<const CLI::App*> commands = parsed_commands(app);
  const CLI::App& command = *commands.back();
  std::string name = app.get_name();
  for (std::size_t i = 1; i < commands.size(); ++i) name += " " + commands[i]->get_name();
  const std::vector<std::string> known = names_below(command);
  const std::string kind = has_models(command) ? "model" : "command";
  if (const std::string word = unknown_word(app, argc, argv); !word.empty())
    throw CannotStart(fmt::format("unknown {} \"{}\"; there is: {}{}", kind, word,
                                  joined(known, ", "), advice(did_you_mean(word, known), name)));
  // CLI11 reports a missing command before anything else.
  if (const std::vector<std::string> extras = app.remaining(true); !extras.empty()) {
    const std::string& word = extras.front();
    if (word.starts_with("-")) throw CannotStart(unknown_option(command, word, name));
    throw CannotStart(fmt::format("unknown argument {}; see {} --help", word, name));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    throw CannotStart(
        fmt::format("a {} is needed: {}; see {} --help", kind, joined(known, ", "), name));
  const std::string what = error.what();
  throw CannotStart(what.ends_with("?") ? what : what + advice("", name));
}

}  // namespace

CommandParser::CommandParser()
    : app_(
          std::make_unique<CLI::App>("Tessera: deep learning with sharding built in.", "tessera")) {
  app_->formatter(std::make_shared<HelpFormat>());
  app_->set_help_flag("-h,--help", "Print this help and end.");
  app_->set_version_flag("--version", std::string("tessera ") + kVersion, "Print the version.");
  app_->require_subcommand(1);  // exactly one; inside a command at most one
}

CommandParser::~CommandParser() = default;

CLI::App& CommandParser::add(const std::string& path, const std::string& description) {
  CLI::App* above = app_.get();
  std::istringstream words(path);
  std::string name;
  for (std::string next; words >> next; name = next)
    if (!name.empty()) above = above->get_subcommand(name);
  CLI::App* added = above->add_subcommand(name, description);
  return *added->group(has_models(*above) ? "Models" : "Commands");
}

void CommandParser::add(const std::string& path, const std::string& description,
                        OptionTable& table) {
  CLI::App& command = add(path, description);
  for (const Option& option : table.options()) add_option(command, option, table);
}

void CommandParser::add(const std::string& path, const std::string& description,
                        const Argument& argument, std::string& target) {
  add(path, description)
      .add_option(argument.name, target, argument.meaning)
      ->option_text(argument.value);
}

void CommandParser::add(const std::string& path, const std::string& description,
                        const Argument& argument, std::string& target, OptionTable& table) {
  CLI::App& command = add(path, description);
  command.add_option(argument.name, target, argument.meaning)->option_text(argument.value);
  for (const Option& option : table.options()) add_option(command, option, table);
}

std::optional<std::string> CommandParser::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) explain(*app_, error, argc, argv);
    std::ostringstream answer;
    app_->exit(error, answer, answer);  // --help and --version
    write_output(answer.str());
    return std::nullopt;
  }
  std::string path;
  for (const CLI::App* command : parsed_commands(*app_))
    if (command != app_.get()) path += (path.empty() ? "" : " ") + command->get_name();
  return path;
}

std::vector<CompletedCommand> CommandParser::commands() const {
  std::vector<CompletedCommand> found;
  collect(*app_, "", found);
  return found;
}

}  // namespace tessera::tools
