#include "tessera/distributed/store/endpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr int kBacklog = 1024;

struct Addresses {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> first{nullptr, &freeaddrinfo};
  std::string problem{};
  bool is_final = false;
};

Addresses resolve_host(const Endpoint& endpoint, bool to_listen) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  // Untimed: the resolver has limits of its own (timeout and attempts in resolv.conf).
  const int error =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  Addresses addresses;
  addresses.first.reset(error == 0 ? list : nullptr);
  if (error != 0) {
    addresses.problem =
        fmt::format("no address is known for host \"{}\": {}", endpoint.host, gai_strerror(error));
    addresses.is_final = error != EAI_AGAIN;
  }
  return addresses;
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = {};
  if (getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

std::string address_by(NameCall call, int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return call(fd, plain, &length) == 0 ? numeric(plain, length) : "";
}

Socket new_socket(const addrinfo& at) {
  return Socket(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// 0, or what went wrong.
int finish_connecting(int fd, std::chrono::milliseconds timeout) {
  pollfd wanted = {.fd = fd, .events = POLLOUT, .revents = 0};
  const int ready = poll(&wanted, 1, static_cast<int>(timeout.count()));
  if (ready == 0) return ETIMEDOUT;
  if (ready < 0) return errno;
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

struct InterfaceAddress {
  std::string interface;
  std::string address;  // numeric
};

// Of all interfaces; IPv4 first.
std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (int family : {AF_INET, AF_INET6}) {
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == family)
        out.push_back({entry->ifa_name, numeric(entry->ifa_addr, length)});
    }
  }
  return out;
}

// Of the interface with this name. Empty: none.
std::string interface_address(const std::string& name) {
  for (const InterfaceAddress& each : interface_addresses())
    if (each.interface == name) return each.address;
  return "";
}

bool has_interface(const std::string& address) {
  const std::vector<InterfaceAddress> all = interface_addresses();
  return std::any_of(all.begin(), all.end(),
                     [&](const InterfaceAddress& each) { return each.address == address; });
}

}  // namespace

std::string Endpoint::str() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Endpoint parse_endpoint(std::string_view option, std::string_view text, int default_port) {
  Endpoint endpoint{.port = default_port};
  std::string_view port;
  bool has_port = false;
  const std::size_t bracket = text.find(']'), colon = text.rfind(':');
  if (text.starts_with('[') && bracket != std::string_view::npos) {
    endpoint.host = text.substr(1, bracket - 1);
    has_port = bracket + 1 < text.size();
    if (has_port && text[bracket + 1] == ':') port = text.substr(bracket + 2);
  } else if (colon != std::string_view::npos && text.find(':') == colon) {
    endpoint.host = text.substr(0, colon);
    has_port = true;
    port = text.substr(colon + 1);
  } else {
    endpoint.host = text;
  }
  TESSERA_CHECK(!endpoint.host.empty(), "launch", "{} takes host or host:port, got \"{}\"", option,
                text);
  if (!has_port) return endpoint;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  const bool whole = error == std::errc() && end == port.data() + port.size();
  TESSERA_CHECK(whole && endpoint.port >= 1 && endpoint.port <= 65535, "launch",
                "{} takes host:port with a port from 1 to 65535, got \"{}\"", option, text);
  return endpoint;
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string Socket::local_address() const { return address_by(&getsockname, fd_); }
std::string Socket::peer_address() const { return address_by(&getpeername, fd_); }

int Socket::local_port() const {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket listen_at(const Endpoint& endpoint) {
  const Addresses addresses = resolve_host(endpoint, true);
  int error = 0;
  for (const addrinfo* at = addresses.first.get(); at != nullptr; at = at->ai_next) {
    Socket socket = new_socket(*at);
    set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket && bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(socket.fd(), kBacklog) == 0)
      return socket;
    error = errno;
  }
  TESSERA_CHECK_AS(Error, addresses.problem.empty(), "rendezvous", "cannot listen at {}: {}",
                   endpoint.str(), addresses.problem);
  std::string advice = "choose another port";
  if (error == EADDRINUSE) advice = "another run may use it; choose another port";
  if (error == EADDRNOTAVAIL) advice = "it is no address of this host, where node 0 has to run";
  throw_error<Error>("rendezvous", "cannot listen at {}: {}; {}", endpoint.str(),
                     std::strerror(error), advice);
}

int listening_problem(const std::string& address) {
  const Addresses addresses = resolve_host({.host = address}, true);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = addresses.first.get(); at != nullptr; at = at->ai_next) {
    const Socket socket = new_socket(*at);
    if (!socket || bind(socket.fd(), at->ai_addr, at->ai_addrlen) != 0) {
      error = errno;
    } else if (has_interface(numeric(at->ai_addr, at->ai_addrlen))) {
      return 0;
    }  // binding to a loopback address succeeds where the interface is down
  }
  return error;
}

Connecting connect_to(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  const Addresses addresses = resolve_host(endpoint, false);
  Connecting result{.problem = addresses.problem, .is_final = addresses.is_final};
  for (const addrinfo* at = addresses.first.get(); at != nullptr; at = at->ai_next) {
    Socket socket = new_socket(*at);
    int error = 0;
    if (!socket || connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0)
      error = errno == EINPROGRESS ? finish_connecting(socket.fd(), timeout) : errno;
    if (error == 0) return {.socket = std::move(socket)};
    result.problem = std::strerror(error);
  }
  return result;
}

std::string own_address(const std::string& name) {
  if (std::string found = interface_address(name); !found.empty()) return found;
  const Addresses addresses = resolve_host({.host = name}, true);
  TESSERA_CHECK(addresses.problem.empty(), "launch",
                "--local-addr takes an interface, a name or an address of this host: {}",
                addresses.problem);
  for (const addrinfo* at = addresses.first.get(); at != nullptr; at = at->ai_next) {
    const Socket socket = new_socket(*at);
    if (socket && bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0)
      return numeric(at->ai_addr, at->ai_addrlen);
  }
  throw_error<InvalidArgument>("launch", "--local-addr {} is no address of this host", name);
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

bool leads_to_loopback(const Endpoint& endpoint) {
  const Addresses addresses = resolve_host(endpoint, true);
  for (const addrinfo* at = addresses.first.get(); at != nullptr; at = at->ai_next) {
    if (!is_loopback(numeric(at->ai_addr, at->ai_addrlen))) return false;
  }
  return true;
}

void watch_peer(const Socket& socket) {
  set_option(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, 1);   // seconds
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, 1);  // seconds
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);  // ms, for data already sent
  set_option(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace tessera::distributed
