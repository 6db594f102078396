#pragma once

/// Checks where a command may write: not into its inputs, the root or the home folder. Symbolic
/// links are resolved. tensor/io/folder_marker.h checks existing files.

#include <string>
#include <vector>

namespace tessera::tools {

/// A file or folder that a command reads, and the option that names it. An empty path means no
/// input.
struct Input {
  const char* option;
  std::string path;
};

/// Throws CannotStart if `out`, a file or a folder, is the root or the user's home folder, is an
/// input, is inside an input, or contains one.
void check_output(const std::string& out, const std::vector<Input>& inputs);

/// True if both names are the same file or folder, also by hard links. False if one does not exist.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace tessera::tools
