#pragma once

/// The options of a command in one table. The command line, --help, completion, JSON files,
/// --print-config and config.json are all made from it.
///
///     OptionTable table;
///     table.group("Training");
///     table.whole("batch", options.batch, {.least = 1, .most = 1000}, "sequences of a step");
///
/// An option is `--micro-batch` on the command line and `micro_batch` in JSON. The table writes
/// into the options object, which must outlive it. Words of the command line are kept until
/// apply_typed(), so that presets and files can be applied before them.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/runs/flat_json.h"

namespace tessera::models::runs {

/// Checks for option values. The error text names the value and the valid ones.

/// Returns what is wrong with a value, or an empty text.
using OptionCheck = std::function<std::string(const std::string&)>;

/// A finite number that satisfies `fits`; `what` completes "X is not ...".
OptionCheck number_check(std::string what, bool (*fits)(double));
OptionCheck above_zero();
OptionCheck fraction();  ///< in [0, 1)
OptionCheck not_negative();

/// Decimal digits only, in the range.
OptionCheck whole_number(std::uint64_t least, std::uint64_t most);
/// The same for each entry of "512,256"; empty entries are errors.
OptionCheck whole_numbers(std::uint64_t least, std::uint64_t most);

/// The number, if the whole text is one, in C's notation with exponents, inf and nan.
std::optional<double> number_of(const std::string& text);

struct Option {
  std::string name;            ///< without dashes in front: "micro-batch"
  std::string group;           ///< its heading in --help
  std::string value;           ///< its argument: "N", "PATH", "on|off"; empty: a flag
  std::string meaning;         ///< for --help
  std::string unset = "none";  ///< text of the default if get() returns null
  bool of_preset = false;      ///< the default is the preset's
  bool in_config = true;       ///< allowed in a JSON file, and written to it
  JsonKind kind = JsonKind::kText;
  std::string excludes = {};  ///< an option that cannot be combined with it

  OptionCheck problem = {};
  std::function<void(const std::string&)> set = {};  ///< takes a value that passed `problem`
  std::function<JsonValue()> get = {};               ///< null: no value

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
  OptionTable();
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  /// Sets the heading of the options that follow.
  void group(std::string heading) { group_ = std::move(heading); }

  // The returned Option may be changed until a command uses the table. An empty text is null in
  // JSON.
  Option& text(std::string_view name, std::string& target, std::string_view meaning);
  /// The value is made absolute, relative to the user's folder.
  Option& path(std::string_view name, std::string& target, std::string_view meaning);
  Option& choice(std::string_view name, std::string& target, std::vector<std::string> names,
                 std::string_view meaning);
  Option& number(std::string_view name, double& target, OptionCheck check,
                 std::string_view meaning);
  Option& flag(std::string_view name, bool& target, std::string_view meaning);
  Option& list(std::string_view name, std::vector<std::int64_t>& target, WholeRange range,
               std::string_view meaning);
  /// Target: int, std::int64_t, std::uint64_t or std::optional<std::int64_t>.
  template <class Target>
  Option& whole(std::string_view name, Target& target, WholeRange range, std::string_view meaning);
  Option& add(Option option);

  const std::deque<Option>& options() const { return options_; }
  const Option* find(const std::string& name) const;
  std::vector<std::string> names() const;

  /// Keeps a valid value of the command line until apply_typed().
  void keep_typed(const std::string& name, std::string word) { typed_[name] = std::move(word); }
  /// The value that was typed, if any.
  std::optional<std::string> typed(const std::string& name) const;
  void apply_typed();

 private:
  Option& add(std::string_view name, const char* value, std::string_view meaning);

  std::string group_;
  std::deque<Option> options_;  // stable addresses while options are added
  std::map<std::string, std::string> typed_;
};

/// Resolves a relative path in the user's folder: `bazel run` starts programs elsewhere. An empty
/// path stays empty.
std::string absolute_path(const std::string& path);

}  // namespace tessera::models::runs
