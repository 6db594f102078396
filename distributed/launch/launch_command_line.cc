#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/distributed/launch/launch.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/nearest_name.h"

namespace tessera::distributed {
namespace {

constexpr const char* kChecked = "--checked";  // takes no value

// What launch() takes itself.
const std::vector<ProgramOption>& launch_options() {
  static const std::vector<ProgramOption> options = {
      {"--ranks", "N  ranks of this host (2)"},
      {"--launch",
       "auto|threads|processes  ranks are threads or processes; auto: processes, or the ranks that "
       "torchrun, srun or mpirun has started (auto)"},
      {"--device", "cpu|cuda  where ranks make tensors (cpu)"},
      {"--timeout", "SECONDS  of every wait for another rank (300)"},
      {kChecked, " ranks compare each collective before its data moves: finds ranks that differ"},
      {"--bind",
       "auto|none|cores  cores: each rank process has cores of its own, if there are enough; auto: "
       "cores with --device cpu (auto)"},
      {"--nnodes", "N  hosts that run together (1)"},
      {"--node-rank", "K  number of this host, from 0 (0)"},
      {"--rdzv-endpoint", "HOST:PORT  of host 0, where several hosts find each other"},
      {"--rdzv-id", "NAME  tells apart runs of several hosts that have one secret"},
      {"--rdzv-secret-file", "FILE  with the secret of a run of several hosts (TESSERA_SECRET)"},
      {"--local-addr", "NAME  interface, name or address on which ranks listen for other hosts"},
  };
  return options;
}

std::string_view name_of(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

const ProgramOption* find(const std::vector<ProgramOption>& options, std::string_view name) {
  const auto found =
      std::find_if(options.begin(), options.end(),
                   [name](const ProgramOption& option) { return option.name == name; });
  return found == options.end() ? nullptr : &*found;
}

bool is_flag(const ProgramOption& option) {
  return option.name == kChecked || std::holds_alternative<bool*>(option.value);
}

// The program looks for it on the command line itself.
bool is_read_elsewhere(const ProgramOption& option) {
  return std::holds_alternative<std::monostate>(option.value);
}

// The command line of a small program: options by name, where the last one counts.
class CommandLine {
 public:
  // Throws InvalidArgument for an option that neither launch() nor the program has, and for one
  // without its value; not where help is asked for.
  CommandLine(int argc, char** argv, const std::vector<ProgramOption>& own) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      if (argument == "--") break;
      if (argument == "--help" || argument == "-h") asks_for_help_ = true;
    }
    if (!asks_for_help_) read(argc, argv, own);
  }

  bool asks_for_help() const { return asks_for_help_; }
  std::optional<std::string_view> value(std::string_view name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

 private:
  void read(int argc, char** argv, const std::vector<ProgramOption>& own) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      if (argument == "--") break;
      const std::string_view name = name_of(argument);
      const ProgramOption* option = find(own, name);
      if (option != nullptr && is_read_elsewhere(*option)) continue;
      if (option == nullptr) {
        if (find(launch_options(), "-" + std::string(name))) refuse(name, own);  // -ranks
        if (!argument.starts_with("--")) continue;
        option = find(launch_options(), name);
        if (option == nullptr) refuse(name, own);
      }
      const bool has_value = name.size() < argument.size();
      if (is_flag(*option)) {
        TESSERA_CHECK(!has_value, "launch", "{} takes no value", name);
        values_[name] = {};
        continue;
      }
      const bool is_followed = i + 1 < argc && !std::string_view(argv[i + 1]).starts_with("--");
      TESSERA_CHECK(has_value || is_followed, "launch", "{} needs a value", name);
      values_[name] = has_value ? argument.substr(name.size() + 1) : std::string_view(argv[++i]);
    }
  }

  [[noreturn]] static void refuse(std::string_view name, const std::vector<ProgramOption>& own) {
    std::vector<std::string> names{"--help"};
    for (const auto* options : {&launch_options(), &own})
      for (const ProgramOption& option : *options) names.push_back(option.name);
    throw_error<InvalidArgument>("launch", "unknown option {}{}; --help lists all", name,
                                 did_you_mean(name, names));
  }

  std::map<std::string_view, std::string_view> values_;
  bool asks_for_help_ = false;
};

template <class Number>
Number parse_number(std::string_view name, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TESSERA_CHECK(error == std::errc() && end == text.data() + text.size(), "launch",
                "{} takes a number, got \"{}\"", name, text);
  return number;
}

// Puts the text of an option into the program's variable, and prints what that holds, for --help.
struct OptionValue {
  std::string_view name;
  std::string_view text;

  void operator()(std::monostate) const {}
  void operator()(bool* flag) const { *flag = true; }
  void operator()(std::string* value) const { *value = text; }
  template <class Number>
  void operator()(Number* value) const {
    *value = parse_number<Number>(name, text);
  }
};

struct DefaultText {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(const bool*) const { return {}; }
  std::string operator()(const std::string* value) const {
    return value->empty() ? std::string() : fmt::format(" ({})", *value);
  }
  template <class Number>
  std::string operator()(const Number* value) const {
    return fmt::format(" ({})", *value);
  }
};

void set_values(const CommandLine& line, const std::vector<ProgramOption>& own) {
  for (const ProgramOption& option : own)
    if (const auto text = line.value(option.name))
      std::visit(OptionValue{.name = option.name, .text = *text}, option.value);
}

void print_help(const char* program, const std::vector<ProgramOption>& own) {
  const auto print = [](const std::vector<ProgramOption>& options) {
    for (const ProgramOption& option : options)
      fmt::print("  {} {}{}\n", option.name, option.help, std::visit(DefaultText{}, option.value));
  };
  fmt::print("usage: {} [options]\n", program);
  print(own);
  print(launch_options());
  fmt::print("  --help  prints this\n");
}

LaunchMode parse_mode(std::string_view text) {
  if (text == "auto") return LaunchMode::kAuto;
  if (text == "threads") return LaunchMode::kThreads;
  TESSERA_CHECK(text == "processes", "launch",
                "--launch takes auto, threads or processes, got \"{}\"", text);
  return LaunchMode::kProcesses;
}

RankBinding parse_binding(std::string_view text) {
  if (text == "auto") return RankBinding::kAuto;
  if (text == "none") return RankBinding::kNone;
  TESSERA_CHECK(text == "cores", "launch", "--bind takes auto, none or cores, got \"{}\"", text);
  return RankBinding::kCores;
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  TESSERA_CHECK(text == "cuda", "launch", "--device takes cpu or cuda, got \"{}\"", text);
  return {DeviceType::kCuda, 0};
}

void parse_node_options(const CommandLine& line, LaunchOptions& options) {
  if (const auto text = line.value("--nnodes"))
    options.nnodes = parse_number<int>("--nnodes", *text);
  if (const auto text = line.value("--node-rank"))
    options.node_rank = parse_number<int>("--node-rank", *text);
  if (const auto text = line.value("--rdzv-endpoint")) options.rdzv_endpoint = *text;
  if (const auto text = line.value("--rdzv-id")) options.rdzv_id = *text;
  if (const auto text = line.value("--rdzv-secret-file")) options.rdzv_secret_file = *text;
  if (const auto text = line.value("--local-addr")) options.local_addr = *text;
}

LaunchOptions parse_options(const CommandLine& line) {
  constexpr double kShortest = 1e-3, kLongest = 1e9;  // seconds
  LaunchOptions options;
  if (const auto text = line.value("--ranks")) options.ranks = parse_number<int>("--ranks", *text);
  if (const auto text = line.value("--launch")) options.mode = parse_mode(*text);
  if (const auto text = line.value("--device")) options.device = parse_device(*text);
  if (const auto text = line.value("--timeout")) {
    const double seconds = parse_number<double>("--timeout", *text);
    TESSERA_CHECK(seconds >= kShortest && seconds <= kLongest, "launch",
                  "--timeout takes seconds from {:g} to {:g}, got {:g}", kShortest, kLongest,
                  seconds);
    options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000 + 0.5));
  }
  options.checked = line.value(kChecked).has_value();
  if (const auto text = line.value("--bind")) options.bind = parse_binding(*text);
  parse_node_options(line, options);
  return options;
}

// The exit code tells it too where standard error cannot be written.
void print_error(const std::string& text) { std::fputs(text.c_str(), stderr); }

}  // namespace

int launch(int argc, char** argv, const std::function<void(World&)>& body,
           const std::vector<ProgramOption>& own_options) {
  try {
    const CommandLine line(argc, argv, own_options);
    if (line.asks_for_help()) {
      print_help(argc > 0 ? argv[0] : "program", own_options);
      return 0;
    }
    const LaunchOptions options = parse_options(line);
    set_values(line, own_options);
    const LaunchResult result = launch(argc, argv, options, body);
    if (!result.failure.empty())
      print_error(fmt::format("{}error: {}\n", result.last_lines, result.failure));
    return result.exit_code;
  } catch (const Error& error) {
    print_error(fmt::format("error: {}\n", error.what()));
    return 2;
  }
}

}  // namespace tessera::distributed
