#pragma once

/// A store in one process of a run, which all others reach by TCP: for ranks on several hosts.
///
/// There is neither a password nor encryption. Any process that can connect while the run assembles
/// can read the ranks' addresses, take the place of a rank, or make the run fail. The server
/// listens at one given address, closes the port when all expected clients have come, and rejects
/// large and malformed messages; beyond that the network has to be trusted.

#include <memory>
#include <mutex>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/distributed/store/endpoint.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/store/store_message.h"

namespace tessera::distributed {

/// Serves on a thread of its own while it lives.
class TcpStoreServer {
 public:
  struct Options {
    Endpoint at{};      ///< port 0: the system picks
    std::string run{};  ///< what distinguishes the run; clients of another one are refused
    int clients = 1;    ///< when so many have come, the port is closed
  };
  /// Throws Error when it cannot listen there.
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
    std::string name{};  ///< of this client, for errors; each name may connect once
    std::chrono::milliseconds timeout = kDefaultTimeout;  ///< of finding the server
  };
  /// Tries until the server is there. Throws TimeoutError when it does not come, Error when it
  /// refuses this client or is no store; each names the address.
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
  void connect();
  bool greet(std::chrono::milliseconds timeout);
  StoreMessage ask(const StoreMessage& request, std::chrono::milliseconds timeout);
  void send_all(const std::string& bytes);
  std::optional<StoreMessage> receive(std::chrono::milliseconds timeout);
  [[noreturn]] void throw_lost(const std::string& why) const;

  const Options options_;
  Socket socket_;
  std::mutex mutex_;
  MessageReader reader_;
};

}  // namespace tessera::distributed
