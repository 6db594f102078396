#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/distributed/launch/launch.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

// The value of `--name value` or `--name=value`; the last one counts.
std::optional<std::string_view> option_value(int argc, char** argv, std::string_view name) {
  std::optional<std::string_view> value;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") break;
    if (!argument.starts_with(name)) continue;
    const std::string_view rest = argument.substr(name.size());
    if (rest.starts_with('=')) value = rest.substr(1);
    if (!rest.empty()) continue;
    TESSERA_CHECK(i + 1 < argc, "launch", "{} needs a value", name);
    value = argv[++i];
  }
  return value;
}

template <class Number>
Number parse_number(std::string_view name, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TESSERA_CHECK(error == std::errc() && end == text.data() + text.size(), "launch",
                "{} takes a number, got \"{}\"", name, text);
  return number;
}

LaunchMode parse_mode(std::string_view text) {
  if (text == "threads") return LaunchMode::kThreads;
  TESSERA_CHECK(text == "processes", "launch", "--launch takes threads or processes, got \"{}\"",
                text);
  return LaunchMode::kProcesses;
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  TESSERA_CHECK(text == "cuda", "launch", "--device takes cpu or cuda, got \"{}\"", text);
  return {DeviceType::kCuda, 0};
}

void parse_node_options(int argc, char** argv, LaunchOptions& options) {
  if (const auto text = option_value(argc, argv, "--nnodes"))
    options.nnodes = parse_number<int>("--nnodes", *text);
  if (const auto text = option_value(argc, argv, "--node-rank"))
    options.node_rank = parse_number<int>("--node-rank", *text);
  if (const auto text = option_value(argc, argv, "--rdzv-endpoint")) options.rdzv_endpoint = *text;
  if (const auto text = option_value(argc, argv, "--local-addr")) options.local_addr = *text;
}

LaunchOptions parse_options(int argc, char** argv) {
  constexpr double kShortest = 1e-3, kLongest = 1e9;  // seconds
  LaunchOptions options;
  if (const auto text = option_value(argc, argv, "--ranks"))
    options.ranks = parse_number<int>("--ranks", *text);
  if (const auto text = option_value(argc, argv, "--launch")) options.mode = parse_mode(*text);
  if (const auto text = option_value(argc, argv, "--device")) options.device = parse_device(*text);
  if (const auto text = option_value(argc, argv, "--timeout")) {
    const double seconds = parse_number<double>("--timeout", *text);
    TESSERA_CHECK(seconds >= kShortest && seconds <= kLongest, "launch",
                  "--timeout takes seconds from {:g} to {:g}, got {:g}", kShortest, kLongest,
                  seconds);
    options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000 + 0.5));
  }
  parse_node_options(argc, argv, options);
  return options;
}

}  // namespace

int launch(int argc, char** argv, const std::function<void(World&)>& body) {
  try {
    const LaunchResult result = launch(argc, argv, parse_options(argc, argv), body);
    if (!result.failure.empty()) fmt::print(stderr, "error: {}\n", result.failure);
    return result.exit_code;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}

}  // namespace tessera::distributed
