#include "tessera/distributed/transports/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "connect";
constexpr std::size_t kPage = 4096;
// Some microseconds together, in which a peer that runs replies. A peer that waits for this thread's
// core gets it at the first yield.
constexpr int kPolls = 50;
constexpr int kYields = 20;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::size_t channel_bytes(std::size_t slot_bytes) {
  return whole_pages(sizeof(SharedChannel)) + SharedChannel::kSlots * slot_bytes;
}

std::size_t segment_bytes(int channels, std::size_t slot_bytes) {
  return kPage + static_cast<std::size_t>(channels) * channel_bytes(slot_bytes);
}

// Empty when there is no such link.
std::string link_target(const std::string& path) {
  char text[512];
  const ssize_t length = readlink(path.c_str(), text, sizeof(text));
  return length < 0 ? "" : std::string(text, static_cast<std::size_t>(length));
}

std::string unique_name() {
  std::random_device random;
  return fmt::format("tessera-{}-{:08x}{:08x}", getpid(), random(), random());
}

int create_file(const std::string& name, std::size_t bytes) {
  rlimit limit = {};
  TESSERA_CHECK_AS(Error, getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur, kWhere,
                   "shared memory needs {} bytes, more than a file may have; raise the limit "
                   "(ulimit -f)",
                   bytes);
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  TESSERA_CHECK_AS(Error, fd >= 0, kWhere, "shared memory cannot be created: {}",
                   std::strerror(errno));
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  const int error = errno;
  ::close(fd);
  throw_error<Error>(kWhere, "{} bytes of shared memory cannot be created: {}", bytes,
                     std::strerror(error));
}

}  // namespace

void SharedBell::ring() noexcept {
  count_.fetch_add(1, std::memory_order_seq_cst);
  // A thread that has set the flag either sees the new count, or sleeps already.
  if (has_sleepers_.load(std::memory_order_seq_cst) == 0) return;
  if (has_sleepers_.exchange(0, std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, &count_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool SharedBell::wait(std::uint32_t seen, std::chrono::nanoseconds limit) noexcept {
  for (int i = 0; i < kPolls + kYields; ++i) {
    if (count() != seen) return true;
    if (i < kPolls)
      __builtin_ia32_pause();
    else
      sched_yield();
  }
  if (limit.count() <= 0) return false;
  has_sleepers_.store(1, std::memory_order_seq_cst);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  syscall(SYS_futex, &count_, FUTEX_WAIT, seen, &time, nullptr, 0);
  return count() != seen;
}

void SharedChannel::write(const Entry& entry) {
  const std::uint32_t at = written_.load(std::memory_order_relaxed);
  entries_[at % kEntries] = entry;
  written_.store(at + 1, std::memory_order_release);
}

SharedChannel::Entry SharedChannel::read() {
  const std::uint32_t at = read_.load(std::memory_order_relaxed);
  const Entry entry = entries_[at % kEntries];
  read_.store(at + 1, std::memory_order_release);
  return entry;
}

SharedSegment SharedSegment::create(int channels, std::size_t slot_bytes) {
  const std::string name = unique_name();
  return {create_file(name, segment_bytes(channels, slot_bytes)), name, channels, slot_bytes};
}

SharedSegment SharedSegment::open(const std::string& address) {
  std::istringstream words(address);
  int pid = 0, number = 0, channels = 0;
  std::size_t slot_bytes = 0;
  std::string name;
  words >> pid >> number >> channels >> slot_bytes >> name;
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  // Under these numbers there may be a process that does not belong to the run.
  const std::string found = link_target(path);
  TESSERA_CHECK_AS(Error, found.empty() || found == fmt::format("/memfd:{} (deleted)", name),
                   kWhere, "{} is not the shared memory of a peer but {}", path, found);
  const int fd = found.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  TESSERA_CHECK_AS(Error, fd >= 0, kWhere, "{} cannot be opened: {}", path, std::strerror(errno));
  SharedSegment segment(fd, name, channels, slot_bytes);
  segment.close();
  return segment;
}

SharedSegment::SharedSegment(int fd, std::string name, int channels, std::size_t slot_bytes)
    : fd_(fd), name_(std::move(name)), channels_(channels), slot_bytes_(slot_bytes) {
  const std::size_t bytes = segment_bytes(channels_, slot_bytes_);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory != MAP_FAILED) {
    memory_ = static_cast<std::byte*>(memory);
    return;
  }
  const int error = errno;
  close();
  throw_error<Error>(kWhere,
                     "{} bytes of shared memory cannot be mapped: {}; raise the limit of memory "
                     "(ulimit -v)",
                     bytes, std::strerror(error));
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      name_(std::move(other.name_)),
      channels_(other.channels_),
      slot_bytes_(other.slot_bytes_),
      memory_(std::exchange(other.memory_, nullptr)) {}

SharedSegment::~SharedSegment() {
  close();
  if (memory_ != nullptr) munmap(memory_, segment_bytes(channels_, slot_bytes_));
}

void SharedSegment::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string SharedSegment::address() const {
  return fmt::format("{} {} {} {} {}", getpid(), fd_, channels_, slot_bytes_, name_);
}

SharedBell& SharedSegment::bell() const { return *reinterpret_cast<SharedBell*>(memory_); }

SharedChannel& SharedSegment::channel(int index) const {
  const std::size_t at = kPage + static_cast<std::size_t>(index) * channel_bytes(slot_bytes_);
  return *reinterpret_cast<SharedChannel*>(memory_ + at);
}

std::byte* SharedSegment::slot(int channel, std::uint32_t index) const {
  std::byte* head = reinterpret_cast<std::byte*>(&this->channel(channel));
  return head + whole_pages(sizeof(SharedChannel)) + index * slot_bytes_;
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string numbers = link_target("/proc/self/ns/pid");
  // Elsewhere /proc shows other process numbers than this process has.
  const bool shows_own = link_target("/proc/self") == std::to_string(getpid());
  if (boot.empty() || numbers.empty() || !shows_own) return "";
  return boot + " " + numbers;
}

}  // namespace tessera::distributed
