#pragma once

/// A JSON file with the options of a command: flat, under their names with '_' for '-'.

#include <map>
#include <string>

#include "tessera/tools/program/option_table.h"

namespace tessera::tools {

/// The keys of a configuration that are no options: which model, which version wrote it, on which
/// instruction set.
inline constexpr const char* kModelKey = "model";
inline constexpr const char* kVersionKey = "tessera";
inline constexpr const char* kIsaKey = "instruction_set";

/// An object. Throws CannotStart naming the file when it cannot be read or is no JSON object.
Json read_json_file(const std::string& path);

/// The values of a configuration for `model`, by option name, as words of the command line, all of
/// them checked. Throws CannotStart naming file and key: for another model, a key that is not in
/// the table (with the nearest one that is), a value that does not fit, two options that exclude
/// each other.
std::map<std::string, std::string> read_config(const std::string& path, const std::string& model,
                                               const OptionTable& table);

/// What a configuration of this program begins with.
Json config_head(const std::string& model);

}  // namespace tessera::tools
