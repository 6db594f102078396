#pragma once

/// Where a command may write: nothing that it reads, and no folder of everything. Links are
/// resolved. What a place already holds is the matter of tensor/io/folder_marker.h.

#include <string>
#include <vector>

namespace tessera::tools {

/// A file or folder that a command reads, and the option that names it. An empty path is none.
struct Input {
  const char* option;
  std::string path;
};

/// Throws CannotStart where `out`, a file or a folder, is the root or the user's home folder, is
/// one of the inputs, lies in one, or has one in it.
void check_output(const std::string& out, const std::vector<Input>& inputs);

/// One file or folder by two names, also by hard links. False where one of them is missing.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace tessera::tools
