#include "tessera/distributed/launch_folder.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr std::array kWatched = {SIGINT, SIGTERM, SIGHUP};
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "it is written by a signal handler");
std::array<struct sigaction, kWatched.size()> earlier_actions;

void remember(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

LaunchFolder::LaunchFolder() {
  std::error_code no_folder;
  std::filesystem::path base = std::filesystem::temp_directory_path(no_folder);
  if (no_folder) base = "/tmp";
  path_ = (base / "tessera-XXXXXX").string();
  TESSERA_CHECK_AS(Error, mkdtemp(path_.data()) != nullptr, "launch",
                   "cannot make a folder in {}: {}; set TMPDIR to a writable folder", base.string(),
                   std::strerror(errno));
}

LaunchFolder::~LaunchFolder() { remove(); }

void LaunchFolder::remove() noexcept {
  if (removed_) return;
  removed_ = true;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

SignalWatch::SignalWatch() {
  first_signal = 0;
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = &remember;
    sigaction(kWatched[i], nullptr, &earlier_actions[i]);
    if (earlier_actions[i].sa_handler != SIG_IGN) sigaction(kWatched[i], &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (std::size_t i = 0; i < kWatched.size(); ++i)
    sigaction(kWatched[i], &earlier_actions[i], nullptr);
  if (received() != 0) raise(received());
}

int SignalWatch::received() { return first_signal; }

}  // namespace tessera::distributed
