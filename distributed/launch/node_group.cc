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
// How long a node whose ranks only echo a failure waits to hear of its cause; longer than a node
// needs to end its ranks.
constexpr milliseconds kForTheCause{4000};
// How long node 0 keeps the store for nodes that still have to learn how the run ended.
constexpr milliseconds kFarewell{5000};

std::string node_key(int node) { return fmt::format("node {}", node); }
std::string watch_name(int node) { return fmt::format("the watch of node {}", node); }
std::string ended_key(int node) { return fmt::format("ended {}", node); }

std::vector<std::string> keys_of_all(int nodes, std::string (*key)(int)) {
  std::vector<std::string> keys;
  for (int node = 0; node < nodes; ++node) keys.push_back(key(node));
  return keys;
}

// The clients of the store: two connections of each launcher, and the ranks'.
std::vector<std::string> names_of_all(int nodes, int ranks) {
  std::vector<std::string> names;
  for (int node = 0; node < nodes; ++node) {
    names.push_back(node_key(node));
    names.push_back(watch_name(node));
  }
  for (int rank = 0; rank < ranks; ++rank) names.push_back(rank_name(rank));
  return names;
}

}  // namespace

std::string run_name(const RankEnvironment& environment) {
  return fmt::format("{} nodes of {} ranks, launch call {}",
                     environment.size / environment.ranks_per_node, environment.ranks_per_node,
                     environment.call);
}

std::string rank_name(int rank) { return fmt::format("rank {}", rank); }

NodeGroup::NodeGroup(const LaunchOptions& options, int call)
    : node_(options.node_rank),
      nodes_(options.nnodes),
      environment_{.rank = options.node_rank * options.ranks,
                   .size = options.nnodes * options.ranks,
                   .ranks_per_node = options.ranks,
                   .call = call} {
  if (nodes_ == 1) {
    environment_.credentials.secret = make_secret();
    return;
  }
  environment_.credentials = {.secret = read_secret(options.rdzv_secret_file),
                              .job = options.rdzv_id};
  try {
    meet(options);
    wait_for_nodes(options);
    check_addresses();
  } catch (...) {
    stop_watch();
    throw;
  }
}

void NodeGroup::meet(const LaunchOptions& options) {
  const Endpoint at = parse_endpoint("--rdzv-endpoint", options.rdzv_endpoint, kDefaultPort);
  environment_.endpoint = at.str();
  const std::string run = run_name(environment_);
  const Credentials& credentials = environment_.credentials;
  if (node_ == 0)
    server_ = std::make_unique<TcpStoreServer>(
        TcpStoreServer::Options{.at = at,
                                .run = run,
                                .expected = names_of_all(nodes_, environment_.size),
                                .credentials = credentials,
                                .log = &warn_on_standard_error});
  const std::string name = node_key(node_);
  store_ = std::make_unique<TcpStore>(TcpStore::Options{
      .at = at, .run = run, .name = name, .credentials = credentials, .timeout = options.timeout});
  store_->leave_will(kFailed, fmt::format("node {} ({}) is gone: its launcher ended or cannot be "
                                          "reached any more",
                                          node_, store_->local_address()));
  watched_ = std::make_unique<TcpStore>(TcpStore::Options{.at = at,
                                                          .run = run,
                                                          .name = watch_name(node_),
                                                          .credentials = credentials,
                                                          .timeout = options.timeout});
  watcher_ = std::thread([this] { watch(); });
  environment_.address =
      options.local_addr.empty() ? store_->local_address() : own_address(options.local_addr);
  check_has_secret({.host = environment_.address}, credentials);
  store_->set(node_key(node_), environment_.address);
}

void NodeGroup::wait_for_nodes(const LaunchOptions& options) {
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  std::vector<std::string> missing = keys_of_all(nodes_, &node_key);
  while (!missing.empty() && std::chrono::steady_clock::now() < deadline) {
    missing = store_->wait(missing, std::min(kTick, options.timeout));
    TESSERA_CHECK_AS(Error, !failed_, "launch", "not all nodes have come, and {}", first_failure());
  }
  TESSERA_CHECK_AS(
      TimeoutError, missing.empty(), "launch",
      "{} of {} did not come to {} within {:g} s; start the program there too, with "
      "the same --rdzv-endpoint{}",
      fmt::join(missing, ", "), nodes_, environment_.endpoint,
      std::chrono::duration<double>(options.timeout).count(),
      is_loopback(store_->local_address()) ? "; that one can be reached from this host alone" : "");
}

void NodeGroup::check_addresses() {
  if (!is_loopback(environment_.address)) return;
  for (int node = 0; node < nodes_; ++node) {
    const std::string theirs = store_->get(node_key(node)).value_or("");
    TESSERA_CHECK_AS(Error, is_loopback(theirs), "launch",
                     "the ranks of node {} would listen at {}, where node {} at {} cannot reach "
                     "them; name an address or an interface with --local-addr",
                     node_, environment_.address, node, theirs);
  }
}

NodeGroup::~NodeGroup() { stop_watch(); }

void NodeGroup::stop_watch() {
  ending_ = true;
  if (watched_) watched_->shut_down();
  if (watcher_.joinable()) watcher_.join();
}

void NodeGroup::watch() {
  try {
    while (!watched_->wait({kFailed}, std::chrono::hours(1)).empty()) {
    }
    note_failure(watched_->get(kFailed).value_or(""));
  } catch (const Error& error) {
    if (!ending_) note_failure(fmt::format("node 0 cannot be reached any more: {}", error.what()));
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
  const std::vector<std::string> ended = keys_of_all(nodes_, &ended_key);
  while (!failed_ && SignalWatch::received() == 0) {
    if (store_->wait(ended, kTick).empty()) break;
  }
  // Both keys may have been set since the last look.
  if (const std::optional<std::string> text = store_->get(kFailed)) note_failure(*text);
}

std::string NodeGroup::finish(const std::optional<RankFailure>& failure) {
  const std::string ours = failure ? failure->text : "";
  if (nodes_ == 1) return ours;
  const std::string told = fmt::format("on node {} ({}): {}", node_, environment_.address, ours);
  try {
    const auto deadline = std::chrono::steady_clock::now() + kForTheCause;
    const bool echo = failure && failure->echo;
    while (echo && !failed_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kShortTick);
    if (failure) store_->set(kFailed, told);
    store_->set(ended_key(node_), "");
    wait_for_others();
    store_->leave_will("", "");
  } catch (const Error& error) {
    note_failure(fmt::format("node 0 cannot be reached any more: {}", error.what()));
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
