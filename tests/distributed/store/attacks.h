// What a process that does not belong to a run may try at an address where the run listens.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/store/authenticated_channel.h"
#include "tessera/distributed/store/authentication.h"
#include "tessera/distributed/store/endpoint.h"

namespace tessera::distributed {

// True when the peer has closed the connection, or does so before the timeout.
bool closed_within(const Socket& socket, std::chrono::milliseconds timeout);

// Throws StateError when nothing listens there.
Socket raw_connection(const Endpoint& at);

// Sends the bytes, all of them; what the peer does not take is lost.
void send_raw(const Socket& socket, const std::string& bytes);

// A client of the protocol over a socket, for conversations that TcpStore does not have.
class RawClient {
 public:
  RawClient(const Endpoint& at, const Credentials& credentials, const std::string& purpose);

  // Until the channel is open, has a problem, or the peer has gone: whether it is open.
  bool shake_hands();
  void send(FrameType type, const std::string& payload);
  // Nothing when the peer has gone, or after two seconds.
  std::optional<Frame> receive();
  const Socket& socket() const { return socket_; }
  AuthenticatedChannel& channel() { return channel_; }

 private:
  bool receive_some();

  Socket socket_;
  AuthenticatedChannel channel_;
};

// What is attacked: where, and what its own processes know.
struct Target {
  Endpoint at{};
  Credentials credentials{};
  std::string purpose{};
  std::string duplicate{};     // payload of the join message of a process that has come already
  std::string out_of_range{};  // and of one that the run does not have
};

// Starts the attack and returns its connections, to be kept open while it lasts; all but the
// half-open ones and the slow one have been closed by the target.
using Attack = std::vector<Socket> (*)(const Target&);
struct NamedAttack {
  const char* name;
  Attack start;
  const char* logged;  // what the target says of it
};
// Eight of them.
const std::vector<NamedAttack>& all_attacks();

// A valid one of a client: its nonce.
std::string first_message();

// Sends one byte a second until the connection is closed, at most for so long: whether it was.
bool send_slowly(const Socket& socket, const std::string& bytes, std::chrono::milliseconds timeout);

}  // namespace tessera::distributed
