#include "tessera/distributed/transports/gloo_rendezvous.h"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tessera/distributed/store/endpoint.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

template <class E>
[[noreturn]] void throw_cannot_connect(const GlooConnection::Options& options,
                                       const std::string& what) {
  CollectiveSite site;
  site.rank = options.rank;
  site.group = options.group;
  site.op = "connect";
  throw E(error_text("connect", fmt::format("group \"{}\": {}", options.group, what)), site);
}

// Gloo's reason without the place in its source: "[enforce fail at FILE:LINE] CONDITION. reason".
std::string reason_of(const std::exception& error) {
  std::string text = error.what();
  if (!text.starts_with('[')) return text;
  const std::size_t place = text.find("] ");
  if (place != std::string::npos) text.erase(0, place + 2);
  const std::size_t condition = text.find(". ");
  if (condition != std::string::npos && condition + 2 < text.size()) text.erase(0, condition + 2);
  return text;
}

// What Gloo would report in words of its source, or by waiting for its deadline.
void check_sockets(const GlooConnection::Options& options) {
  if (const int problem = listening_problem(options.address); problem != 0) {
    const char* advice = "name another address of this host with --local-addr";
    if (is_loopback(options.address))
      advice = "switch the loopback interface on: ip link set lo up";
    if (problem == EMFILE || problem == ENFILE)
      advice = "raise the limit of open files (ulimit -n)";
    throw_cannot_connect<CollectiveError>(
        options, fmt::format("the other ranks cannot reach this one at {}: {}; {}", options.address,
                             std::strerror(problem), advice));
  }
  constexpr rlim_t kBeside = 8;  // Gloo's own, and what is opened meanwhile
  rlimit limit = {};
  std::error_code unknown;
  const auto open_now = static_cast<rlim_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd", unknown), {}));
  const rlim_t needed = open_now + static_cast<rlim_t>(options.size) + kBeside;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && !unknown && needed > limit.rlim_cur)
    throw_cannot_connect<CollectiveError>(
        options, fmt::format("connecting with {} other ranks needs {} open files, the limit is {}; "
                             "raise it (ulimit -n)",
                             options.size - 1, needed, limit.rlim_cur));
}

std::string joined_key(int rank) { return fmt::format("joined-{}", rank); }

void wait_until_all_joined(const GlooConnection::Options& options) {
  if (!options.store->set(joined_key(options.rank), options.address)) {
    throw_cannot_connect<CollectiveError>(
        options, fmt::format("another rank {} has joined already", options.rank));
  }
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.size; ++rank) keys.push_back(joined_key(rank));
  const std::vector<std::string> absent = options.store->wait(keys, options.timeout);
  if (absent.empty()) return;
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    if (std::find(absent.begin(), absent.end(), joined_key(rank)) != absent.end())
      missing.push_back(rank);
  }
  throw_cannot_connect<CollectiveError>(
      options, fmt::format("{} did not come within {:g} s", ranks_text(missing),
                           std::chrono::duration<double>(options.timeout).count()));
}

// A store as Gloo wants it.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(distributed::Store& store, milliseconds timeout) : store_(store), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(gloo_key(key), {data.begin(), data.end()});
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    const std::string value = store_.get(gloo_key(key)).value();
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    std::vector<std::string> wanted;
    for (const std::string& key : keys) wanted.push_back(gloo_key(key));
    const std::vector<std::string> missing = store_.wait(wanted, timeout);
    TESSERA_CHECK_AS(TimeoutError, missing.empty(), "connect", "no rank sent \"{}\" within {:g} s",
                     missing.front(), std::chrono::duration<double>(timeout).count());
  }

 private:
  static std::string gloo_key(const std::string& key) { return "gloo " + key; }

  distributed::Store& store_;
  milliseconds timeout_;
};

// While it lives, the calling thread is a batch thread, and so are those that it starts.
class BatchScheduling {
 public:
  BatchScheduling() {
    if (sched_getscheduler(0) != SCHED_OTHER) return;  // the user's choice stays
    is_set_ = sched_setscheduler(0, SCHED_BATCH, &kNoPriority) == 0;
  }
  ~BatchScheduling() {
    if (is_set_) sched_setscheduler(0, SCHED_OTHER, &kNoPriority);
  }
  BatchScheduling(const BatchScheduling&) = delete;
  BatchScheduling& operator=(const BatchScheduling&) = delete;

 private:
  static constexpr sched_param kNoPriority = {};
  bool is_set_ = false;
};

// Gloo's device has a thread. While another thread holds the lock of a connection that has data, it
// asks for the data again and again, without waiting. What the holder has just sent may wake it up
// on the holder's core: it must not take that core, or the lock stays held until the scheduler ends
// the asking. For batch threads Linux takes no core from another.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& address) {
  const BatchScheduling batch;
  return gloo::transport::tcp::CreateDevice(address.c_str());
}

}  // namespace

std::shared_ptr<gloo::Context> connect_with_all(const GlooConnection::Options& options) {
  // Gloo waits five times as long as it is told for a connection.
  constexpr int kGlooFactor = 5;
  check_sockets(options);
  wait_until_all_joined(options);
  try {
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(std::max(milliseconds(1), options.timeout / kGlooFactor));
    GlooStore store(*options.store, options.timeout);
    std::shared_ptr<gloo::transport::Device> device = make_device(options.address);
    context->connectFullMesh(store, device);
    return context;
  } catch (const std::exception& error) {
    throw_cannot_connect<CollectiveAborted>(
        options, fmt::format("cannot connect with the other ranks from {}: {}", options.address,
                             reason_of(error)));
  }
}

}  // namespace tessera::distributed
