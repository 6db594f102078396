#include "tessera/distributed/launch/launch_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/folder_marker.h"

namespace tessera::distributed {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "launch";
constexpr const char* kKind = "launch";
constexpr std::string_view kBegin = "tessera-";

// Not a link, and owned by this user: the folder for temporary files is writable by all users.
bool is_folder_of_mine(const std::string& path) {
  struct stat found = {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid();
}

// The lock comes before the marker: a folder that is marked and not locked is not in use.
void remove_abandoned(const fs::path& base) {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kBegin)) continue;
    if (!is_folder_of_mine(path) || !is_marked(path, kKind)) continue;
    try {
      const auto lock = try_lock_file(kWhere, folder_lock_path(path), path);
      if (lock) fs::remove_all(path, ignored);
    } catch (const Error&) {
      // Another start is removing it.
    }
  }
}

}  // namespace

LaunchFolder::LaunchFolder() {
  std::error_code no_folder;
  fs::path base = fs::temp_directory_path(no_folder);
  if (no_folder) base = "/tmp";
  remove_abandoned(base);
  path_ = (base / fmt::format("{}XXXXXX", kBegin)).string();
  TESSERA_CHECK_AS(Error, mkdtemp(path_.data()) != nullptr, kWhere,
                   "cannot make a folder in {}: {}; set TMPDIR to a writable folder", base.string(),
                   std::strerror(errno));
  try {
    lock_.emplace(lock_file(kWhere, folder_lock_path(path_), path_));
    mark_folder(kWhere, path_, kKind);
  } catch (...) {
    fs::remove_all(path_, no_folder);
    throw;
  }
}

LaunchFolder::~LaunchFolder() { remove(); }

void LaunchFolder::remove() noexcept {
  if (!lock_) return;
  std::error_code ignored;
  fs::remove(fs::path(path_) / kMarkerFile, ignored);  // another start shall not help
  fs::remove_all(path_, ignored);
  lock_.reset();
}

}  // namespace tessera::distributed
