#include "tessera/distributed/transports/gloo_context.h"

#include <fcntl.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

namespace tcp = gloo::transport::tcp;

// Of connecting within this process. Gloo waits five times as long.
constexpr std::chrono::seconds kWithinHost{10};

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
//
// No other host shall reach what it listens on.
std::shared_ptr<tcp::Device> make_device() {
  const BatchScheduling batch;
  return std::make_shared<tcp::Device>(tcp::CreateDeviceAttr("127.0.0.1"));
}

sockaddr_in loopback_address(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

tcp::Address as_gloo(const sockaddr_in& address) {
  return tcp::Address(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

// An address of a connection of IPv4; zeros for other descriptors.
sockaddr_in name_by(NameCall call, int fd) {
  sockaddr_in address = {};
  socklen_t length = sizeof(address);
  const bool named = call(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  return named && address.sin_family == AF_INET ? address : sockaddr_in{};
}

// A connection as both its ends name it: two of one process may have one port of their own.
using Ends = std::tuple<in_addr_t, in_port_t, in_addr_t, in_port_t>;
Ends ends_of(const sockaddr_in& from, const sockaddr_in& to) {
  return {from.sin_addr.s_addr, from.sin_port, to.sin_addr.s_addr, to.sin_port};
}

// The descriptors of all connections of this process, by their ends.
std::map<Ends, int> connections_of_this_process() {
  std::map<Ends, int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const sockaddr_in to = name_by(&getpeername, fd);
    if (to.sin_port != 0) all[ends_of(name_by(&getsockname, fd), to)] = fd;
  }
  return all;
}

// A connection of this process to the port at which the pair listens.
Socket connect_to_pair(const gloo::transport::Pair& pair) {
  const tcp::Address at(pair.address().bytes());
  // Untimed: within this process, whose backlog has room for all that connect together.
  Socket mine(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* address = reinterpret_cast<const sockaddr*>(&at.getSockaddr());
  TESSERA_CHECK_AS(Error, mine && connect(mine.fd(), address, sizeof(sockaddr_in)) == 0, "connect",
                   "no connection within this host: {}", std::strerror(errno));
  return mine;
}

// Waits until the pair has accepted. The pair with the lower address waits for the other one.
void await_accepted(gloo::transport::Pair& pair) {
  constexpr std::uint32_t kLastLoopback = 0x7FFFFFFF;
  pair.connect(as_gloo(loopback_address(kLastLoopback, 65535)).bytes());
}

// Gloo's own way to connect does not do between hosts: a pair listens, and takes the first
// connection that comes for that of its peer, whatever process it is from. So each pair is connected
// with this process, and then its descriptor becomes that of the connection with its peer. The
// system forgets the first connection, and that Gloo's thread waited for it.
class HandOver {
 public:
  HandOver(tcp::Device& device, gloo::transport::Context& context)
      : device_(device), context_(context) {}

  void begin(int peer, Socket socket) {
    auto& pair = context_.createPair(peer);
    Socket mine = connect_to_pair(*pair);
    begun_.push_back({pair.get(), std::move(socket), std::move(mine)});
  }
  // All that have begun: Gloo's thread has accepted many in the time in which it accepts one.
  void finish() {
    for (const Begun& each : begun_) await_accepted(*each.pair);
    const std::map<Ends, int> connections = connections_of_this_process();
    for (const Begun& each : begun_) {
      const int mine = each.mine.fd();
      const auto theirs =
          connections.find(ends_of(name_by(&getpeername, mine), name_by(&getsockname, mine)));
      TESSERA_CHECK_AS(Error, theirs != connections.end(), "connect",
                       "another process of this host took a connection of this one");
      const int at = theirs->second;
      const int fd = each.socket.fd();
      constexpr int kOn = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof(kOn));
      // No trace of the first connection stays in the system's tables of ports.
      constexpr linger kAtOnce = {.l_onoff = 1, .l_linger = 0};
      setsockopt(at, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof(kAtOnce));
      TESSERA_CHECK_AS(Error, dup3(fd, at, O_CLOEXEC) == at, "connect",
                       "a connection cannot be handed over: {}", std::strerror(errno));
      device_.registerDescriptor(at, EPOLLIN, dynamic_cast<tcp::Handler*>(each.pair));
    }
    begun_.clear();
  }
  std::size_t begun() const { return begun_.size(); }

 private:
  struct Begun {
    gloo::transport::Pair* pair;
    Socket socket;
    Socket mine;
  };
  tcp::Device& device_;
  gloo::transport::Context& context_;
  std::vector<Begun> begun_;
};

class ConnectedContext final : public gloo::Context {
 public:
  ConnectedContext(int rank, int size, std::shared_ptr<tcp::Device> device,
                   std::shared_ptr<gloo::transport::Context> transport)
      : gloo::Context(rank, size) {
    device_ = std::move(device);
    transportContext_ = std::move(transport);
  }
};

}  // namespace

std::shared_ptr<gloo::Context> make_gloo_context(int rank, std::vector<Socket> sockets) {
  const int size = static_cast<int>(sockets.size());
  const std::shared_ptr<tcp::Device> device = make_device();
  const std::shared_ptr<gloo::transport::Context> transport = device->createContext(rank, size);
  transport->setTimeout(kWithinHost);
  HandOver hand_over(*device, *transport);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) hand_over.begin(peer, std::move(sockets[static_cast<std::size_t>(peer)]));
    if (hand_over.begun() == kGlooPairsTogether) hand_over.finish();
  }
  hand_over.finish();
  return std::make_shared<ConnectedContext>(rank, size, device, transport);
}

}  // namespace tessera::distributed
