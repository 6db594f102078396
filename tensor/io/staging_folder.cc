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
// In a staging folder: the files that are being replaced, until all new ones are in their places;
// then they are of no more use, and the folder has the second name.
constexpr const char* kReplaced = ".tessera-replaced";
constexpr const char* kUseless = ".tessera-useless";

[[noreturn]] void fail(const char* where, const char* action, const std::string& path) {
  throw_error<CheckpointError>(where, "cannot {} \"{}\": {}", action, path, std::strerror(errno));
}

// What a process that was killed between two renames had taken away. False where it cannot be.
bool put_back_replaced(const fs::path& staging) {
  const fs::path replaced = staging / kReplaced;
  std::error_code error;
  if (fs::symlink_status(replaced, error).type() != fs::file_type::directory) return true;
  error.clear();
  for (fs::directory_iterator entry(replaced, error), end; !error && entry != end;
       entry.increment(error))
    if (std::rename(entry->path().c_str(),
                    (staging.parent_path() / entry->path().filename()).c_str()) != 0)
      return false;
  return !error;
}

void remove_staging(const std::string& path) {
  std::error_code ignored;
  if (put_back_replaced(path)) fs::remove_all(path, ignored);
}

// What a killed process left: marked, or still empty.
void remove_leftover(const std::string& path) {
  if (is_marked(path, kKind)) remove_staging(path);
  ::rmdir(path.c_str());
}

// Renames of files, which are undone unless keep() is called.
class Moves {
 public:
  Moves() = default;
  ~Moves() {
    for (auto move = done_.rbegin(); move != done_.rend(); ++move)
      std::rename(move->second.c_str(), move->first.c_str());
  }
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

  // False where the system refuses.
  bool move(const fs::path& from, const fs::path& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) return false;
    done_.emplace_back(from, to);
    return true;
  }
  void keep() { done_.clear(); }

 private:
  std::vector<std::pair<fs::path, fs::path>> done_;
};

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
  if (!is_published()) remove_staging(path_);
}

bool StagingFolder::is_published() const { return !is_marked(path_, kKind); }

void publish_files(const char* where, const std::string& staging, const std::string& folder,
                   const NameTest& is_replaced) {
  std::vector<std::string> coming = names_in(where, staging), going;
  std::erase(coming, kMarkerFile);
  const auto path_of = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  for (const std::string& name : names_in(where, folder)) {
    if (!contains(coming, name) && !is_replaced(name)) continue;
    check_replaceable(where, path_of(name));
    going.push_back(name);
  }
  const fs::path replaced = fs::path(staging) / kReplaced;
  if (::mkdir(replaced.c_str(), 0777) != 0) fail(where, "create", replaced);
  Moves moves;
  for (const std::string& name : going)
    if (!moves.move(path_of(name), replaced / name)) fail(where, "replace", path_of(name));
  for (const std::string& name : coming)
    if (!moves.move(fs::path(staging) / name, path_of(name))) fail(where, "replace", path_of(name));
  sync_folder(where, folder);
  if (!moves.move(replaced, fs::path(staging) / kUseless)) fail(where, "replace", replaced);
  moves.keep();
  std::error_code ignored;
  fs::remove_all(staging, ignored);
}

}  // namespace tessera
