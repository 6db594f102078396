#include "tessera/distributed/launch/node_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/distributed/launch/signal_watch.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

constexpr int kDefaultPort = 29400;
constexpr const char* kFailed = "failed";
constexpr milliseconds kTick{100};
constexpr milliseconds kShortTick{5};
// How long a launcher whose ranks only echo a failure waits to hear of its cause; longer than one
// needs to end its ranks.
constexpr milliseconds kForTheCause{4000};
// How long launcher 0 keeps the store for those that still have to learn how the run ended.
constexpr milliseconds kFarewell{5000};

std::string ended_key(const std::string& name) { return "ended " + name; }
std::string watch_name(const std::string& name) { return "the watch of " + name; }

std::string lost_text(const std::string& name, const Error& error) {
  return fmt::format("{} cannot be reached any more: {}", name, error.what());
}

}  // namespace

std::string run_name(const RankEnvironment& environment) {
  return fmt::format("{} nodes of {} ranks, launch call {}",
                     environment.size / environment.ranks_per_node, environment.ranks_per_node,
                     environment.call);
}

std::string rank_name(int rank) { return fmt::format("rank {}", rank); }

Launcher launcher_of(const LaunchOptions& options, const std::optional<ForeignWorld>& world) {
  Launcher launcher = {
      .number = options.node_rank,
      .launchers = options.nnodes,
      .ranks = *options.ranks,
      .ranks_per_node = *options.ranks,
      .bind_to_cores = options.bind == RankBinding::kCores ||
                       (options.bind == RankBinding::kAuto && !options.device.is_cuda()),
      .endpoint = options.rdzv_endpoint,
      .job = options.rdzv_id,
      .secret_file = options.rdzv_secret_file,
      .local_addr = options.local_addr,
      .timeout = options.timeout};
  if (!world) return launcher;
  launcher.number = world->rank;
  launcher.launchers = world->size;
  launcher.ranks = 1;
  launcher.is_of_rank = true;
  launcher.place = world->place;
  if (launcher.job.empty()) launcher.job = world->job;
  return launcher;
}

NodeGroup::NodeGroup(const Launcher& launcher, int call)
    : launcher_(launcher),
      environment_{.rank = launcher.number * launcher.ranks,
                   .size = launcher.launchers * launcher.ranks,
                   .ranks_per_node = launcher.ranks_per_node,
                   .call = call} {
  if (launcher.launchers == 1) {
    environment_.credentials.secret = make_secret();
    return;
  }
  environment_.credentials = {.secret = read_secret(launcher.secret_file), .job = launcher.job};
  try {
    meet();
    wait_for_launchers();
    check_addresses();
  } catch (...) {
    stop_watch();
    throw;
  }
}

// What messages call a launcher, and what the store knows it by.
std::string NodeGroup::name(int number) const {
  return fmt::format("{} {}", launcher_.is_of_rank ? "the launcher of rank" : "node", number);
}

std::vector<std::string> NodeGroup::names() const {
  std::vector<std::string> all;
  for (int number = 0; number < launcher_.launchers; ++number) all.push_back(name(number));
  return all;
}

// Two connections of each launcher, and the ranks'.
std::vector<std::string> NodeGroup::clients() const {
  std::vector<std::string> all;
  for (const std::string& launcher : names()) {
    all.push_back(launcher);
    all.push_back(watch_name(launcher));
  }
  for (int rank = 0; rank < environment_.size; ++rank) all.push_back(rank_name(rank));
  return all;
}

void NodeGroup::serve(const Endpoint& at, const std::string& run) {
  try {
    server_ = std::make_unique<TcpStoreServer>(
        TcpStoreServer::Options{.at = at,
                                .run = run,
                                .expected = clients(),
                                .credentials = environment_.credentials,
                                .log = &warn_on_standard_error});
  } catch (const Error& error) {
    if (launcher_.place.empty()) throw;
    throw Error(fmt::format("{}; {}: name another with --rdzv-endpoint HOST:PORT", error.what(),
                            launcher_.place));
  }
}

void NodeGroup::meet() {
  const Endpoint at = parse_endpoint("--rdzv-endpoint", launcher_.endpoint, kDefaultPort);
  environment_.endpoint = at.str();
  const std::string run = run_name(environment_);
  const std::string mine = name(launcher_.number);
  if (launcher_.number == 0) serve(at, run);
  const auto connect = [&](const std::string& client) {
    return std::make_unique<TcpStore>(TcpStore::Options{.at = at,
                                                        .run = run,
                                                        .name = client,
                                                        .credentials = environment_.credentials,
                                                        .timeout = launcher_.timeout});
  };
  store_ = connect(mine);
  store_->leave_will(
      kFailed, fmt::format("{} ({}) is gone: {} ended or cannot be reached any more", mine,
                           store_->local_address(), launcher_.is_of_rank ? "it" : "its launcher"));
  watched_ = connect(watch_name(mine));
  watcher_ = std::thread([this] { watch(); });
  environment_.address =
      launcher_.local_addr.empty() ? store_->local_address() : own_address(launcher_.local_addr);
  check_has_secret({.host = environment_.address}, environment_.credentials);
  store_->set(mine, environment_.address);
}

void NodeGroup::wait_for_launchers() {
  const auto deadline = std::chrono::steady_clock::now() + launcher_.timeout;
  std::vector<std::string> missing = names();
  while (!missing.empty() && std::chrono::steady_clock::now() < deadline) {
    missing = store_->wait(missing, std::min(kTick, launcher_.timeout));
    TESSERA_CHECK_AS(Error, !failed_, "launch", "not all {} have come, and {}",
                     launcher_.is_of_rank ? "ranks" : "nodes", first_failure());
  }
  TESSERA_CHECK_AS(
      TimeoutError, missing.empty(), "launch",
      "{} of {} did not come to {} within {:g} s; start the program there too, with "
      "the same --rdzv-endpoint{}",
      fmt::join(missing, ", "), launcher_.launchers, environment_.endpoint,
      std::chrono::duration<double>(launcher_.timeout).count(),
      is_loopback(store_->local_address()) ? "; that one can be reached from this host alone" : "");
}

void NodeGroup::check_addresses() {
  if (!is_loopback(environment_.address)) return;
  for (const std::string& other : names()) {
    const std::string theirs = store_->get(other).value_or("");
    TESSERA_CHECK_AS(
        Error, is_loopback(theirs), "launch",
        "the ranks of {} would listen at {}, where {} at {} cannot reach them; name an "
        "address or an interface with --local-addr",
        name(launcher_.number), environment_.address, other, theirs);
  }
}

NodeGroup::~NodeGroup() { stop_watch(); }

void NodeGroup::stop_watch() {
  ending_ = true;
  if (watched_) watched_->shut_down();
  // Untimed: its connection has been shut down.
  if (watcher_.joinable()) watcher_.join();
}

void NodeGroup::watch() {
  try {
    while (!watched_->wait({kFailed}, std::chrono::hours(1)).empty()) {
    }
    note_failure(watched_->get(kFailed).value_or(""));
  } catch (const Error& error) {
    if (!ending_) note_failure(lost_text(name(0), error));
  }
}

void NodeGroup::note_failure(const std::string& text) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = text;
  failed_ = true;
}

std::string NodeGroup::first_failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

void NodeGroup::wait_for_others() {
  std::vector<std::string> ended;
  for (const std::string& name : names()) ended.push_back(ended_key(name));
  while (!failed_ && SignalWatch::received() == 0) {
    if (store_->wait(ended, kTick).empty()) break;
  }
  // Both keys may have been set since the last look.
  if (const std::optional<std::string> text = store_->get(kFailed)) note_failure(*text);
}

std::string NodeGroup::finish(const std::optional<RankFailure>& failure) {
  const std::string ours = failure ? failure->text : "";
  if (launcher_.launchers == 1) return ours;
  // The text of a rank's failure names the rank.
  const std::string told =
      launcher_.is_of_rank
          ? fmt::format("on {}: {}", environment_.address, ours)
          : fmt::format("on {} ({}): {}", name(launcher_.number), environment_.address, ours);
  try {
    const auto deadline = std::chrono::steady_clock::now() + kForTheCause;
    const bool echo = failure && failure->echo;
    while (echo && !failed_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kShortTick);
    if (failure) store_->set(kFailed, told);
    store_->set(ended_key(name(launcher_.number)), "");
    wait_for_others();
    store_->leave_will("", "");
  } catch (const Error& error) {
    note_failure(lost_text(name(0), error));
  }
  stop_watch();
  watched_.reset();
  store_.reset();
  if (server_) server_->wait_until_left(kFarewell);
  server_.reset();
  const std::string first = first_failure();
  return first == told ? ours : first;
}

}  // namespace tessera::distributed
