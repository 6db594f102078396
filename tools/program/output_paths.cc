#include "tessera/tools/program/output_paths.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tessera/tools/program/options/output.h"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

// Resolves links, as far as the path exists, and drops a trailing slash.
fs::path resolved(const std::string& path) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(path, error);
  if (error) out = fs::absolute(path, error).lexically_normal();
  return out.has_filename() ? out : out.parent_path();
}

// True if the path is the folder or is below it.
bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// From the environment and from the user database, which may differ.
std::vector<std::string> home_folders() {
  std::vector<std::string> homes;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    homes.emplace_back(home);
  if (const passwd* user = getpwuid(geteuid()); user != nullptr && user->pw_dir != nullptr)
    homes.emplace_back(user->pw_dir);
  return homes;
}

void check_place(const std::string& out) {
  const fs::path place = resolved(out);
  if (place == place.root_path())
    throw CannotStart(fmt::format("--out: {} is the root of all files; name a place in it", out));
  for (const std::string& home : home_folders())
    if (place == resolved(home))
      throw CannotStart(fmt::format("--out: {} is your home folder; name a place in it", out));
}

}  // namespace

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

void check_output(const std::string& out, const std::vector<Input>& inputs) {
  check_place(out);
  const fs::path place = resolved(out);
  for (const Input& input : inputs) {
    if (input.path.empty()) continue;
    const fs::path source = resolved(input.path);
    if (source == place || is_same_file(input.path, out))
      throw CannotStart(
          fmt::format("--out: {} is what {} reads; choose another place", out, input.option));
    if (is_within(place, source))
      throw CannotStart(fmt::format("--out: {} lies in {}, the folder of {}; choose another place",
                                    out, input.path, input.option));
    if (is_within(source, place))
      throw CannotStart(fmt::format("--out: {} has {} in it, which {} reads; choose another place",
                                    out, input.path, input.option));
  }
}

}  // namespace tessera::tools
