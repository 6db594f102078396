#pragma once

/// What can be asked of a command, in one table: the command line, --help, completion, a JSON file,
/// --print-config and config.json are all made of it.
///
///     OptionTable table;
///     table.group("Training");
///     table.whole("batch", options.batch, {.least = 1, .most = 1000}, "sequences of a step");
///
/// An option is `--micro-batch` on the command line and `micro_batch` in JSON. The table writes
/// into the options object, which outlives it. What was typed waits until apply_typed(), so that
/// presets and files can come before it.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

using Json = nlohmann::ordered_json;

/// What a value is in JSON.
enum class OptionKind : std::uint8_t { kText, kNumber, kFlag, kList };

struct Option {
  std::string name;            ///< without dashes in front: "micro-batch"
  std::string group;           ///< its heading in --help
  std::string value;           ///< what is typed behind it: "N", "PATH", "on|off"; empty: a flag
  std::string meaning;         ///< for --help
  std::string unset = "none";  ///< the default in words, where get() is null
  bool of_preset = false;      ///< the default is the preset's
  bool in_config = true;       ///< may stand in a JSON file, and is written to it
  OptionKind kind = OptionKind::kText;
  std::string excludes = {};  ///< the option that may not stand beside it

  /// What is wrong with a value, or nothing.
  std::function<std::string(const std::string&)> problem = {};
  std::function<void(const std::string&)> set = {};  ///< of a value without a problem
  std::function<Json()> get = {};                    ///< null: there is none

  std::string key() const;  ///< in JSON: "micro_batch"
  /// "none", "0.1", "off", "the preset's: 600".
  std::string default_text() const;
};

struct WholeRange {
  std::uint64_t least = 0;
  std::uint64_t most = 1'000'000'000;
};

class OptionTable {
 public:
  OptionTable() = default;
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  /// The heading of those that follow.
  void group(std::string heading) { group_ = std::move(heading); }

  // The result may be changed until add_to(). Empty text is "there is none".
  Option& text(std::string name, std::string& target, std::string meaning);
  /// Made absolute when it is set: relative to where the user is.
  Option& path(std::string name, std::string& target, std::string meaning);
  Option& choice(std::string name, std::string& target, std::vector<std::string> names,
                 std::string meaning);
  Option& number(std::string name, double& target, CLI::Validator check, std::string meaning);
  Option& flag(std::string name, bool& target, std::string meaning);
  Option& list(std::string name, std::vector<std::int64_t>& target, WholeRange range,
               std::string meaning);
  /// An integer, or an optional one.
  template <class Target>
  Option& whole(std::string name, Target& target, WholeRange range, std::string meaning);
  Option& add(Option option);

  const std::deque<Option>& options() const { return options_; }
  const Option* find(const std::string& name) const;
  std::vector<std::string> names() const;

  /// Adds all to a command; they are checked when it is parsed, and kept for apply_typed(). The
  /// table must stay where it is.
  void add_to(CLI::App& command);
  /// The value that was typed, if it was.
  std::optional<std::string> typed(const std::string& name) const;
  void apply_typed();

  /// Every option that may stand in a file and has a value.
  Json to_json() const;

 private:
  Option& whole_option(std::string name, WholeRange range, std::string meaning);

  std::string group_;
  std::deque<Option> options_;  // where they are while more are added
  std::map<std::string, std::string> typed_;
};

/// Relative paths are relative to where the user is: under `bazel run` the program starts
/// elsewhere. An empty path stays empty.
std::string absolute_path(const std::string& path);

template <class Target>
Option& OptionTable::whole(std::string name, Target& target, WholeRange range,
                           std::string meaning) {
  Option& option = whole_option(std::move(name), range, std::move(meaning));
  if constexpr (requires { target.has_value(); }) {
    using Value = typename Target::value_type;
    option.set = [&target](const std::string& word) {
      target = static_cast<Value>(std::stoull(word));
    };
    option.get = [&target] { return target ? Json(*target) : Json(); };
  } else {
    option.set = [&target](const std::string& word) {
      target = static_cast<Target>(std::stoull(word));
    };
    option.get = [&target] { return Json(target); };
  }
  return option;
}

}  // namespace tessera::tools
