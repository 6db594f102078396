#include "tessera/tools/program/completion.h"

#include <fmt/format.h>

#include <sstream>

#include "tessera/tensor/check.h"

namespace tessera::tools {
namespace {

// An option with names or files for values.
struct CompletedOption {
  std::string option;
  std::string names;  // with spaces between them
  bool files = false;
};

// A command, and what may stand behind it.
struct CompletedCommand {
  std::string path;                // "tessera train mlp"
  std::vector<std::string> words;  // commands and options
  std::vector<CompletedOption> options;
};

// The text "bytes|PATH" as what may be typed.
CompletedOption completed_option(const std::string& option, const std::string& text) {
  CompletedOption completed{.option = option, .names = {}};
  const bool has_names = text.find('|') != std::string::npos;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, '|');) {
    if (part == "PATH")
      completed.files = true;
    else if (has_names)
      completed.names += (completed.names.empty() ? "" : " ") + part;
  }
  return completed;
}

void collect(const CLI::App& command, const std::string& above,
             std::vector<CompletedCommand>& found) {
  CompletedCommand entry{.path = above + command.get_name(), .words = {}, .options = {}};
  const auto below = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* next : below) entry.words.push_back(next->get_name());
  for (const CLI::Option* option : command.get_options()) {
    const std::string text = option->get_option_text();
    if (option->get_positional()) entry.words.push_back(completed_option("", text).names);
    for (const std::string& name : option->get_lnames()) {
      entry.words.push_back("--" + name);
      const CompletedOption completed = completed_option("--" + name, text);
      if (completed.files || !completed.names.empty()) entry.options.push_back(completed);
    }
  }
  found.push_back(entry);
  for (const CLI::App* next : below) collect(*next, entry.path + " ", found);
}

std::string bash_function(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> known;
  std::string values, words;
  for (const CompletedCommand& command : commands) {
    known.push_back('"' + command.path + '"');
    for (const CompletedOption& option : command.options)
      values += fmt::format("    \"{}:{}\") files={} words=\"{}\" ;;\n", command.path,
                            option.option, option.files ? 1 : 0, option.names);
    words +=
        fmt::format("    \"{}\") words=\"{}\" ;;\n", command.path, fmt::join(command.words, " "));
  }
  return fmt::format(R"(_tessera() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local path=tessera files=0 words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{}  esac
  case "$path:$before" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [ "$files" = 1 ]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$word"))
  fi
}}
complete -F _tessera tessera
)",
                     fmt::join(known, "|"), words, values);
}

}  // namespace

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> shells = {"bash", "zsh"};
  return shells;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  TESSERA_CHECK(shell == "bash" || shell == "zsh", "tools.completion",
                "there is no script for the shell {}; use {}", shell,
                fmt::join(completion_shells(), " or "));
  std::vector<CompletedCommand> commands;
  collect(app, "", commands);
  const std::string how =
      shell == "bash"
          ? "# Completion of tessera for bash:  source <(tessera completion bash)\n"
          : "# Completion of tessera for zsh:  source <(tessera completion zsh)\n"
            "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n";
  return how + bash_function(commands);
}

}  // namespace tessera::tools
