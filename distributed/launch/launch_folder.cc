#include "tessera/distributed/launch/launch_folder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

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

std::string temporary_folder() {
  std::error_code no_folder;
  const fs::path found = fs::temp_directory_path(no_folder);
  return no_folder ? "/tmp" : found.string();
}

LaunchFolder::LaunchFolder() {
  const fs::path base = temporary_folder();
  remove_abandoned(base);
  path_ = (base / fmt::format("{}XXXXXX", kBegin)).string();
  TESSERA_CHECK_AS(Error, mkdtemp(path_.data()) != nullptr, kWhere,
                   "cannot make a folder in {}: {}; set TMPDIR to a writable folder", base.string(),
                   std::strerror(errno));
  try {
    lock_.emplace(lock_file(kWhere, folder_lock_path(path_), path_));
    mark_folder(kWhere, path_, kKind);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
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

namespace {

std::string page_path(const std::string& folder, int rank) {
  return fmt::format("{}/page-{}", folder, rank);
}

// Takes the space now: where there is none, a write to the page would end the rank by SIGBUS.
int reserve(int fd) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, sizeof(RankPage));
  } while (error == EINTR);
  return error;
}

std::shared_ptr<RankPage> map_page(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  TESSERA_CHECK_AS(Error, fd >= 0, "launch", "cannot open {}: {}", path, std::strerror(errno));
  const int no_room = (flags & O_CREAT) != 0 ? reserve(fd) : 0;
  void* memory = MAP_FAILED;
  if (no_room == 0)
    memory = mmap(nullptr, sizeof(RankPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  TESSERA_CHECK_AS(Error, no_room == 0, "launch",
                   "cannot reserve {} bytes in {}: {}; make room or set TMPDIR to another folder",
                   sizeof(RankPage), path, std::strerror(no_room));
  TESSERA_CHECK_AS(Error, memory != MAP_FAILED, "launch", "cannot map {}: {}", path,
                   std::strerror(error));
  return {static_cast<RankPage*>(memory), [](RankPage* page) { munmap(page, sizeof(RankPage)); }};
}

}  // namespace

std::shared_ptr<RankPage> RankPage::create(const std::string& folder, int rank) {
  return map_page(page_path(folder, rank), O_CREAT | O_EXCL);
}

std::shared_ptr<RankPage> RankPage::open(const std::string& folder, int rank) {
  return map_page(page_path(folder, rank), 0);
}

void RankPage::set_failure(const RankFailure& failure) {
  const std::size_t length = std::min(failure.text.size(), sizeof(text_) - 1);
  std::memcpy(text_, failure.text.data(), length);
  text_[length] = '\0';
  echo_ = failure.echo;
  time_ns_ = failure.time_ns;
  failed_.store(true, std::memory_order_release);
}

std::optional<RankFailure> RankPage::failure(int rank) const {
  if (!has_failure()) return std::nullopt;
  return RankFailure{.rank = rank,
                     .time_ns = time_ns_,
                     .echo = echo_,
                     .text = std::string(text_, strnlen(text_, sizeof(text_)))};
}

}  // namespace tessera::distributed
