#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/distributed/launch/probe.h"
#include "tessera/tensor/error.h"
#include "tessera/tools/program/doctor/read_facts.h"

namespace tessera::tools::doctor {
namespace {

using std::chrono::seconds;

std::string numeric(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

bool is_internet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

std::vector<NetworkInterface> read_interfaces() {
  std::vector<NetworkInterface> all;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return all;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const std::string name = each->ifa_name;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const NetworkInterface& known) { return known.name == name; });
    if (found == all.end()) {
      all.push_back({.name = name,
                     .is_up = (each->ifa_flags & IFF_UP) != 0,
                     .is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0});
      found = all.end() - 1;
    }
    if (is_internet(each->ifa_addr)) found->addresses.push_back(numeric(each->ifa_addr));
  }
  freeifaddrs(first);
  return all;
}

Resolved resolve_by_system(const std::string& name) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &first); error != 0)
    return {.problem = gai_strerror(error)};
  Resolved found;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next)
    found.addresses.push_back(numeric(each->ai_addr));
  freeaddrinfo(first);
  return found;
}

// A name server that is down may take half a minute, which is too long here.
Resolved resolve_for_a_second(const std::string& name) {
  struct Reply {
    std::mutex mutex;
    std::condition_variable came;
    bool is_there = false;
    Resolved found{};
  };
  const auto reply = std::make_shared<Reply>();
  std::thread([reply, name] {
    Resolved found = resolve_by_system(name);
    const std::lock_guard lock(reply->mutex);
    reply->found = std::move(found);
    reply->is_there = true;
    reply->came.notify_all();
  }).detach();
  std::unique_lock lock(reply->mutex);
  if (!reply->came.wait_for(lock, seconds(1), [&] { return reply->is_there; }))
    return {.problem = "no reply within a second"};
  return reply->found;
}

// This host's address on the way to another one. Connecting a datagram socket sends nothing.
std::string address_towards(const sockaddr* address, socklen_t size) {
  const int fd = ::socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage own = {};
  socklen_t own_size = sizeof(own);
  std::string text;
  if (::connect(fd, address, size) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0)
    text = numeric(reinterpret_cast<const sockaddr*>(&own));
  close(fd);
  return text;
}

// An address for documentation, which no network has: only the default route leads there.
std::string address_of_default_route() {
  sockaddr_in anywhere = {};
  anywhere.sin_family = AF_INET;
  anywhere.sin_port = htons(9);
  inet_pton(AF_INET, "203.0.113.1", &anywhere.sin_addr);
  return address_towards(reinterpret_cast<const sockaddr*>(&anywhere), sizeof(anywhere));
}

std::string address_towards(const std::string& numeric_address) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(9);
  if (inet_pton(AF_INET, numeric_address.c_str(), &v4.sin_addr) == 1)
    return address_towards(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(9);
  if (inet_pton(AF_INET6, numeric_address.c_str(), &v6.sin6_addr) == 1)
    return address_towards(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
  return {};
}

using Resolve = std::function<Resolved(const std::string&)>;

void read_way(const Resolve& resolve, NetworkFacts& network) {
  if (network.endpoint.empty()) {
    network.route_address = address_of_default_route();
    return;
  }
  std::string host;
  try {
    host = distributed::host_of_endpoint(network.endpoint);
  } catch (const Error& error) {
    network.endpoint_problem = error.what();
    return;
  }
  const Resolved found = resolve(host);
  network.endpoint_problem = found.problem;
  if (found.addresses.empty()) return;
  network.route_address = address_towards(found.addresses.front());
  if (network.route_address.empty()) network.endpoint_problem = "no route leads there";
}

}  // namespace

NetworkFacts read_network(const Sources& sources, const std::string& endpoint) {
  const Resolve resolve = sources.resolve ? sources.resolve : resolve_for_a_second;
  NetworkFacts network = {.interfaces = read_interfaces(), .endpoint = endpoint};
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  network.host_name = name.data();
  const Resolved own = resolve(network.host_name);
  network.host_addresses = own.addresses;
  network.host_problem = own.problem;
  network.loopback_problem = distributed::loopback_problem();
  read_way(resolve, network);
  return network;
}

}  // namespace tessera::tools::doctor
