#pragma once

/// Where a socket of the run is: host and port, and TCP sockets that lead there.

#include <chrono>
#include <string>
#include <string_view>

namespace tessera::distributed {

struct Endpoint {
  std::string host{};  ///< a name or a numeric address, IPv4 or IPv6
  int port = 0;
  std::string str() const;  ///< "node0:29400", "[::1]:29400"
};

/// Reads "host", "host:port", "[IPv6 address]:port" or an IPv6 address. `option` is what the text
/// was given to, for errors: throws InvalidArgument for an empty host or a port outside 1..65535.
Endpoint parse_endpoint(std::string_view option, std::string_view text, int default_port);

/// Owns a file descriptor, or nothing.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() noexcept;

  /// Numeric addresses of a connected or listening socket; empty when it is not connected.
  std::string local_address() const;
  std::string peer_address() const;
  int local_port() const;

 private:
  int fd_;
};

/// Listens at the first address of the endpoint that is one of this host, and at no other. Port 0:
/// the system picks one. Throws Error naming the endpoint: the port is taken, or the address is not
/// of this host, or there is no such host.
Socket listen_at(const Endpoint& endpoint);

/// Why this host cannot listen at a numeric address that one of its interfaces has: 0, or the
/// system's error number.
int listening_problem(const std::string& address);

struct Connecting {
  Socket socket{};        ///< connected, or nothing
  std::string problem{};  ///< why not
  bool is_final = false;  ///< another attempt would end the same way
};
/// One attempt, over all addresses of the endpoint.
Connecting connect_to(const Endpoint& endpoint, std::chrono::milliseconds timeout);

/// The numeric address that `name` stands for: an interface of this host, a host name or an
/// address. Throws InvalidArgument where it is none of this host's.
std::string own_address(const std::string& name);

/// Only this host can reach it.
bool is_loopback(const std::string& numeric_address);

/// All addresses of the endpoint are such ones. True for one without any, which nothing can reach.
bool leads_to_loopback(const Endpoint& endpoint);

/// Ends a connection whose peer does not reply, for instance because its host is down, after about
/// five seconds.
void watch_peer(const Socket& socket);

}  // namespace tessera::distributed
