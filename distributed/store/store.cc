#include "tessera/distributed/store/store.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "tessera/tensor/check.h"

namespace tessera::distributed {

void check_entry(const std::string& key, const std::string& value) {
  TESSERA_CHECK(key.size() <= kMaxKeyBytes, "rendezvous",
                "a key of {} bytes is too large for a store, which takes {}: \"{}...\"", key.size(),
                kMaxKeyBytes, key.substr(0, 40));
  TESSERA_CHECK(value.size() <= kMaxValueBytes, "rendezvous",
                "the value of \"{}\" has {} bytes, which is too large for a store: it takes {}",
                key, value.size(), kMaxValueBytes);
}

bool MemoryStore::set(const std::string& key, const std::string& value) {
  check_entry(key, value);
  const std::lock_guard lock(mutex_);
  const bool is_new = values_.emplace(key, value).second;
  changed_.notify_all();
  return is_new;
}

std::optional<std::string> MemoryStore::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> MemoryStore::wait(const std::vector<std::string>& keys,
                                           std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  std::vector<std::string> missing = keys;
  changed_.wait_for(lock, timeout, [&] {
    std::erase_if(missing, [this](const std::string& key) { return values_.contains(key); });
    return missing.empty();
  });
  return missing;
}

namespace {

// Between two looks at a folder: a part of the time that the wait has lasted. So many ranks that
// wait longer, because they are many, look no more often.
constexpr std::chrono::milliseconds kShortestTick{1};
constexpr std::chrono::milliseconds kLongestTick{50};
constexpr int kTicks = 16;

// A file is readable while its value is still being written; the length in front tells.
using Length = std::uint64_t;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

bool write_all(int fd, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

FolderStore::FolderStore(std::string folder) : folder_(std::move(folder)) {}

std::string FolderStore::path(const std::string& key) const {
  std::string name;
  for (char c : key)
    name += is_plain(c) ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
  return fmt::format("{}/key-{}", folder_, name);
}

bool FolderStore::set(const std::string& key, const std::string& value) {
  check_entry(key, value);
  const std::string file = path(key);
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) return false;
  const Length length = value.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  const bool written = fd >= 0 && write_all(fd, bytes + value);
  const int error = errno;
  if (fd >= 0) close(fd);
  TESSERA_CHECK_AS(Error, written, "rendezvous", "{} cannot be written: {}; make room there", file,
                   std::strerror(error));
  return true;
}

std::optional<std::string> FolderStore::get(const std::string& key) {
  std::ifstream in(path(key), std::ios::binary);
  if (!in) return std::nullopt;
  std::stringstream text;
  text << in.rdbuf();
  const std::string bytes = std::move(text).str();
  Length length = 0;
  if (bytes.size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (bytes.size() - sizeof(length) < length) return std::nullopt;
  return bytes.substr(sizeof(length));
}

std::vector<std::string> FolderStore::wait(const std::vector<std::string>& keys,
                                           std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now(), deadline = start + timeout;
  std::vector<std::string> missing = keys;
  for (;;) {
    std::erase_if(missing, [this](const std::string& key) { return get(key).has_value(); });
    const auto now = Clock::now();
    if (missing.empty() || now >= deadline) return missing;
    const auto tick =
        std::clamp<Clock::duration>((now - start) / kTicks, kShortestTick, kLongestTick);
    std::this_thread::sleep_for(std::min<Clock::duration>(tick, deadline - now));
  }
}

}  // namespace tessera::distributed
