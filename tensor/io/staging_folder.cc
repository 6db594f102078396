#include "tessera/tensor/io/staging_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "staging";

[[noreturn]] void fail(const char* where, const char* action, const std::string& path) {
  throw_error<CheckpointError>(where, "cannot {} \"{}\": {}", action, path, std::strerror(errno));
}

// What a killed process left: marked, or still empty.
void remove_leftover(const std::string& path) {
  std::error_code ignored;
  if (is_marked(path, kKind)) fs::remove_all(path, ignored);
  ::rmdir(path.c_str());
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

StagingFolder::StagingFolder(const char* where, std::string path) : path_(std::move(path)) {
  remove_leftover(path_);
  if (::mkdir(path_.c_str(), 0777) != 0) {
    TESSERA_CHECK_AS(
        StateError, errno != EEXIST, where,
        "\"{}\" is in the way, and was not made by tessera; move it, or choose another "
        "path",
        path_);
    fail(where, "create", path_);
  }
  mark_folder(where, path_, kKind);
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  if (!is_published()) fs::remove_all(path_, ignored);
}

bool StagingFolder::is_published() const { return !is_marked(path_, kKind); }

void publish_files(const char* where, const std::string& staging, const std::string& folder,
                   const NameTest& is_replaced) {
  std::vector<std::string> coming = names_in(where, staging), going;
  std::erase(coming, kMarkerFile);
  const auto old_path = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  for (const std::string& name : names_in(where, folder)) {
    if (!contains(coming, name) && !is_replaced(name)) continue;
    check_replaceable(where, old_path(name));
    if (!contains(coming, name)) going.push_back(name);
  }
  for (const std::string& name : going)
    if (::unlink(old_path(name).c_str()) != 0) fail(where, "remove", old_path(name));
  for (const std::string& name : coming)
    if (std::rename((fs::path(staging) / name).c_str(), old_path(name).c_str()) != 0)
      fail(where, "replace", old_path(name));
  sync_folder(where, folder);
  std::error_code ignored;
  fs::remove_all(staging, ignored);
}

}  // namespace tessera
