#pragma once

/// A JSON file with the options of a command: flat, under their names with '_' for '-'. It begins
/// with what wrote it, on which instruction set, and for which model.

#include <map>
#include <optional>
#include <string>

#include "tessera/tools/program/options/option_table.h"

namespace tessera::tools {

/// What a configuration says of itself. A text is empty where there is none.
struct ConfigHead {
  std::string model;
  std::optional<std::string> version;  ///< of the program that wrote it, where one did
};
/// Throws CannotStart naming the file when it cannot be read or is no JSON object.
ConfigHead read_config_head(const std::string& path);

/// The values of a configuration for `model`, by option name, as words of the command line, all of
/// them checked. Throws CannotStart naming file and key: for another model, a key that is not in
/// the table (with the nearest one that is), a value that does not fit, two options that exclude
/// each other.
std::map<std::string, std::string> read_config(const std::string& path, const std::string& model,
                                               const OptionTable& table);

/// A configuration of this program: every option of the table that may stand in one and has a
/// value.
std::string config_text(const std::string& model, const OptionTable& table);

}  // namespace tessera::tools
