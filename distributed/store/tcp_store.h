#pragma once

/// A store in one process of a run, which all others reach by TCP: for ranks on several hosts.
///
/// Both ends prove that they know the run's secret, and every message is authenticated (authenticated_channel.h);
/// nothing is encrypted. Without a secret, which only loopback addresses allow, all local users can
/// pass for processes of the run. The server listens at one given address until all expected
/// clients have come.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/distributed/store/authenticated_channel.h"
#include "tessera/distributed/store/authentication.h"
#include "tessera/distributed/store/drop_log.h"
#include "tessera/distributed/store/endpoint.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/store/store_message.h"

namespace tessera::distributed {

/// Serves on a thread of its own while it lives.
class TcpStoreServer {
 public:
  /// Of a client that has not said its name yet: from then on the connection is dropped.
  static constexpr std::chrono::milliseconds kIntroduction{5000};
  /// Such connections beyond the number of expected clients: one more drops the oldest.
  static constexpr std::size_t kMostStrangers = 64;

  struct Options {
    Endpoint at{};      ///< port 0: the system picks
    std::string run{};  ///< what distinguishes the run; clients of another one are refused
    std::vector<std::string> expected{};  ///< names; when all have come, the port is closed
    Credentials credentials{};
    LineSink log{};  ///< called on the server's thread for connections that are dropped
    std::chrono::milliseconds introduction = kIntroduction;
  };
  /// Throws Error when it cannot listen there, InvalidArgument where that needs a secret.
  explicit TcpStoreServer(const Options& options);
  /// Closes all connections.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// Where it listens, with the port that was picked.
  Endpoint endpoint() const;
  /// Returns when every client that came has left, or after `timeout`: true if all have left.
  bool wait_until_left(std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A client. Thread-safe; requests take turns, so one that waits keeps the others waiting.
class TcpStore final : public Store {
 public:
  struct Options {
    Endpoint at{};       ///< of the server
    std::string run{};   ///< the same as the server's
    std::string name{};  ///< of this client; each expected name may connect once
    Credentials credentials{};
    std::chrono::milliseconds timeout = kDefaultTimeout;  ///< of finding the server
  };
  /// Tries until the server is there. Throws TimeoutError when it does not come, Error when it
  /// refuses this client, has another secret or is no store; each names the address. Throws
  /// InvalidArgument where there needs to be a secret.
  explicit TcpStore(const Options& options);

  bool set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::vector<std::string> wait(const std::vector<std::string>& keys,
                                std::chrono::milliseconds timeout) override;

  /// What the server sets in this client's name when the connection ends. A later will replaces it;
  /// an empty key takes it back.
  void leave_will(const std::string& key, const std::string& value);
  /// The numeric address at which the server sees this host.
  std::string local_address() const { return socket_.local_address(); }
  /// Makes requests under way, and all later ones, fail. For other threads.
  void shut_down() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void connect();
  bool greet(std::chrono::milliseconds timeout);
  bool shake_hands(Clock::time_point deadline);
  void check_greeting() const;
  StoreMessage ask(const StoreMessage& request, std::chrono::milliseconds timeout);
  void send_all();
  bool receive_some(Clock::time_point deadline);
  std::optional<StoreMessage> receive(Clock::time_point deadline);
  [[noreturn]] void throw_lost(const std::string& why) const;

  const Options options_;
  Socket socket_;
  std::mutex mutex_;
  std::optional<AuthenticatedChannel> channel_;
};

}  // namespace tessera::distributed
