#include "tessera/tools/program/options/completion.h"

#include <fmt/format.h>

#include <sstream>

#include "tessera/models/runs/words.h"
#include "tessera/tensor/check.h"
#include "tessera/tools/program/options/texts.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

// The values that an option takes.
struct Values {
  std::string names;  // separated by spaces
  bool files = false;
};

// Parses "bytes|PATH".
Values values_of(const std::string& text) {
  Values values;
  const bool has_names = text.find('|') != std::string::npos;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, '|');) {
    if (part == "PATH")
      values.files = true;
    else if (has_names)
      values.names += (values.names.empty() ? "" : " ") + part;
  }
  return values;
}

std::string bash_function(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> known;
  std::string values, words;
  for (const CompletedCommand& command : commands) {
    known.push_back('"' + command.path + '"');
    std::vector<std::string> behind = command.below;
    for (const CompletedOption& option : command.options) {
      const Values typed = values_of(option.value);
      behind.push_back(option.name.empty() ? typed.names : option.name);
      if (!option.name.empty() && (typed.files || !typed.names.empty()))
        values += fmt::format("    \"{}:{}\") files={} words=\"{}\" ;;\n", command.path,
                              option.name, typed.files ? 1 : 0, typed.names);
    }
    words += fmt::format("    \"{}\") words=\"{}\" ;;\n", command.path, joined(behind, " "));
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
                     joined(known, "|"), words, values);
}

}  // namespace

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> shells = {"bash", "zsh"};
  return shells;
}

std::string completion_script(const std::vector<CompletedCommand>& commands,
                              const std::string& shell) {
  TESSERA_CHECK(shell == "bash" || shell == "zsh", "tools.completion",
                "there is no script for the shell {}; use {}", shell,
                joined(completion_shells(), " or "));
  const std::string how =
      shell == "bash"
          ? "# Completion of tessera for bash:  source <(tessera completion bash)\n"
          : "# Completion of tessera for zsh:  source <(tessera completion zsh)\n"
            "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n";
  return how + bash_function(commands);
}

}  // namespace tessera::tools
