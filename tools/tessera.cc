// The program `tessera`. Exit codes: 0 done, 1 the run failed, 2 nothing was started.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "tessera/tools/tessera_options.h"
#include "tessera/tools/tessera_train.h"

namespace {

using tessera::tools::TrainMlpOptions;

constexpr int kRunFailed = 1;
constexpr int kNotStarted = 2;

int report(int code, const std::string& message) {
  fmt::print(stderr, "tessera: {}\n", message);
  return code;
}

// The word after the parsed commands that names none: what a missing subcommand is about.
std::string unknown_word(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-")) return "";
    const auto next =
        command->get_subcommands([&](const CLI::App* app) { return app->get_name() == word; });
    if (next.empty()) return word;
    command = next.front();
  }
  return "";
}

// The deepest command that was parsed, as it is typed.
std::string command_of(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return name;
}

int explain(const CLI::App& app, const CLI::App& train, const CLI::ParseError& error, int argc,
            char** argv) {
  const std::string command = command_of(app);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const bool is_train = train.parsed();
    const std::string known = is_train ? "mlp" : "train";
    const std::string what = is_train ? "model" : "command";
    const std::string word = unknown_word(app, argc, argv);
    if (word.empty())
      return report(kNotStarted,
                    fmt::format("a {} is needed: {}; see {} --help", what, known, command));
    return report(kNotStarted, fmt::format("unknown {} \"{}\"; there is: {}; see {} --help", what,
                                           word, known, command));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::string word = app.remaining(true).front();
    return report(kNotStarted,
                  fmt::format("unknown {} {}; see {} --help",
                              word.starts_with("-") ? "option" : "argument", word, command));
  }
  return report(kNotStarted, fmt::format("{}; see {} --help", error.what(), command));
}

int run(int argc, char** argv) {
  CLI::App app("Tessera: deep learning with sharding built in.", "tessera");
  app.set_version_flag("--version", std::string("tessera ") + tessera::tools::kVersion);
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "Train a model.");
  train->require_subcommand(1);
  CLI::App* mlp =
      train->add_subcommand("mlp", "A stack of fully connected layers, on Fashion-MNIST.");
  TrainMlpOptions options;
  tessera::tools::add_options(*mlp, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    return explain(app, *train, error, argc, argv);
  }
  tessera::tools::complete_options(*mlp, options);
  return tessera::tools::train_mlp(options, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tessera::tools::CannotStart& error) {
    return report(kNotStarted, error.what());
  } catch (const std::exception& error) {
    return report(kRunFailed, error.what());
  }
}
