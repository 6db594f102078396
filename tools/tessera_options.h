#pragma once

/// What can be asked of `tessera train mlp`: on the command line, or in a JSON file with the same
/// names.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/distributed/launch.h"
#include "tessera/models/mlp_stack.h"
#include "tessera/tensor/error.h"

namespace CLI {
class App;
}

namespace tessera::tools {

inline constexpr const char* kVersion = "0.1.0";

/// The command line, the configuration or the machine does not allow to start: exit code 2.
class CannotStart : public Error {
 public:
  using Error::Error;
};

/// As typed; the defaults are the program's.
struct TrainMlpOptions {
  std::string config;
  std::string data;
  int ranks = 2;
  std::string launch = "processes";
  std::string device = "cpu";
  std::string cpu_compute = "inline";
  bool deterministic = false;
  bool checked = false;
  std::string preset;
  std::vector<std::int64_t> hidden;  ///< empty: the preset's
  std::string activation;            ///< empty: the preset's
  std::string precision = "f32";
  std::int64_t epochs = 10;
  std::optional<std::int64_t> steps;  ///< instead of epochs
  std::int64_t batch = 256;
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  std::uint64_t seed = 1;
  double timeout = 300;  ///< seconds
  std::string out;       ///< empty: nothing is written

  TrainMlpOptions();
  models::MlpOptions model() const;
  distributed::LaunchOptions launch_options() const;
};

/// Adds the options to a command; they are read when it is parsed.
void add_options(CLI::App& command, TrainMlpOptions& options);

/// After parsing: takes from the file of --config what the command line does not say, and makes
/// paths absolute. Throws CannotStart naming the file and the key for one that cannot be read, an
/// unknown key or a value that does not fit.
void complete_options(CLI::App& command, TrainMlpOptions& options);

/// config.json: everything that a repetition needs. It may be given to --config.
nlohmann::ordered_json to_json(const TrainMlpOptions& options);

}  // namespace tessera::tools
