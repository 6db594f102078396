#pragma once

/// JSON files with the options of a command: flat, with '_' instead of '-' in names. The first keys
/// are the program's version, the instruction set and the model.

#include <map>
#include <optional>
#include <string>

#include "tessera/models/runs/option_table.h"

namespace tessera::models::runs {

/// The model and version that a configuration names. A text is empty if the key is missing.
struct ConfigHead {
  std::string model;
  std::optional<std::string> version;  ///< of the program that wrote it, if there is one
};
/// Throws OptionError naming the file if it cannot be read or is not a JSON object.
ConfigHead read_config_head(const std::string& path);

/// The values of a configuration for `model`, by option name, as words of the command line, all
/// checked. Throws OptionError naming file and key: for another model, an unknown key (with the
/// closest valid one), an invalid value, or two options that exclude each other.
std::map<std::string, std::string> read_config(const std::string& path, const std::string& model,
                                               const OptionTable& table);

/// A configuration of this program: every option of the table that is allowed in a file and has a
/// value.
std::string config_text(const std::string& model, const OptionTable& table);

}  // namespace tessera::models::runs
