#include "tessera/distributed/launch/rank_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
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
