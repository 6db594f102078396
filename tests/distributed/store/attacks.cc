#include "tessera/tests/distributed/store/attacks.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <random>
#include <thread>
#include <utility>

#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{2000};
constexpr int kHalfOpen = 100;

std::vector<Socket> one(Socket socket) {
  std::vector<Socket> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

void must_be_closed(const Socket& socket) {
  if (!closed_within(socket, kPatience)) throw StateError("the target keeps the connection");
}

std::vector<Socket> shake_hands_as(const Target& target, const Credentials& credentials) {
  RawClient client(target.at, credentials, target.purpose);
  if (client.shake_hands()) throw StateError("the target accepts the attacker");
  must_be_closed(client.socket());
  return {};
}

std::vector<Socket> wrong_secret(const Target& target) {
  return shake_hands_as(target, {.secret = "0123456789abcdef", .job = target.credentials.job});
}

std::vector<Socket> wrong_job(const Target& target) {
  return shake_hands_as(target, {.secret = target.credentials.secret, .job = "another"});
}

std::vector<Socket> join_as(const Target& target, const std::string& payload) {
  RawClient client(target.at, target.credentials, target.purpose);
  if (!client.shake_hands()) throw StateError("the target does not accept the secret");
  client.send(FrameType::kJoin, payload);
  const std::optional<Frame> reply = client.receive();
  if (!reply || reply->type != FrameType::kRefused) throw StateError("the target does not refuse");
  must_be_closed(client.socket());
  return {};
}

std::vector<Socket> duplicate_rank(const Target& target) {
  return join_as(target, target.duplicate);
}
std::vector<Socket> rank_out_of_range(const Target& target) {
  return join_as(target, target.out_of_range);
}

std::vector<Socket> send_once(const Target& target, const std::string& bytes) {
  const Socket socket = raw_connection(target.at);
  send_raw(socket, bytes);
  must_be_closed(socket);
  return {};
}

std::vector<Socket> random_noise(const Target& target) {
  std::mt19937 random(7);
  std::string bytes(5000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return send_once(target, bytes);
}

// In the first message, and in the first one after the handshake.
std::vector<Socket> huge_lengths(const Target& target) {
  const std::string huge = "\xFF\xFF\xFF\xFF";
  std::string hello = "Ts\2\1" + huge;
  hello.append(1000, 'x');
  send_once(target, hello);
  RawClient client(target.at, target.credentials, target.purpose);
  if (!client.shake_hands()) throw StateError("the target does not accept the secret");
  send_raw(client.socket(), std::string("Ts\2\x10") + huge);
  must_be_closed(client.socket());
  return {};
}

// The first half says nothing, the second half stops after the first message.
std::vector<Socket> half_open(const Target& target) {
  std::vector<Socket> sockets;
  for (int i = 0; i < kHalfOpen; ++i) {
    sockets.push_back(raw_connection(target.at));
    if (i >= kHalfOpen / 2) send_raw(sockets.back(), first_message());
  }
  return sockets;
}

std::vector<Socket> slow(const Target& target) { return one(raw_connection(target.at)); }

}  // namespace

bool closed_within(const Socket& socket, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::array<char, 256> bytes{};
  for (;;) {
    pollfd wanted = {.fd = socket.fd(), .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || poll(&wanted, 1, static_cast<int>(left.count())) == 0) return false;
    const ssize_t count = recv(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return true;
  }
}

Socket raw_connection(const Endpoint& at) {
  Connecting attempt = connect_to(at, kPatience);
  if (!attempt.socket) throw StateError("no connection with " + at.str() + ": " + attempt.problem);
  return std::move(attempt.socket);
}

void send_raw(const Socket& socket, const std::string& bytes) {
  send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string first_message() {
  std::string message("Ts\2\1\x20\0\0\0", 8);
  message.append(kNonceBytes, 'n');
  return message;
}

bool send_slowly(const Socket& socket, const std::string& bytes, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (const char byte : bytes) {
    send_raw(socket, std::string(1, byte));
    if (closed_within(socket, milliseconds(1000))) return true;
    if (Clock::now() >= deadline) return false;
  }
  return false;
}

RawClient::RawClient(const Endpoint& at, const Credentials& credentials, const std::string& purpose)
    : socket_(raw_connection(at)),
      channel_(AuthenticatedChannel::Side::kClient, credentials.key(purpose),
               random_bytes(kNonceBytes)) {}

bool RawClient::shake_hands() {
  for (;;) {
    send_raw(socket_, std::exchange(channel_.output(), {}));
    if (channel_.is_open()) return true;
    if (!channel_.problem().empty() || !receive_some()) return false;
  }
}

void RawClient::send(FrameType type, const std::string& payload) {
  channel_.send(type, payload);
  send_raw(socket_, std::exchange(channel_.output(), {}));
}

std::optional<Frame> RawClient::receive() {
  for (;;) {
    if (std::optional<Frame> frame = channel_.next()) return frame;
    if (!channel_.problem().empty() || !receive_some()) return std::nullopt;
  }
}

bool RawClient::receive_some() {
  std::array<char, 4096> bytes{};
  pollfd wanted = {.fd = socket_.fd(), .events = POLLIN, .revents = 0};
  if (poll(&wanted, 1, static_cast<int>(kPatience.count())) <= 0) return false;
  const ssize_t count = recv(socket_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count <= 0) return false;
  channel_.receive({bytes.data(), static_cast<std::size_t>(count)});
  return true;
}

const std::vector<NamedAttack>& all_attacks() {
  static const std::vector<NamedAttack> attacks = {
      {"wrong secret", &wrong_secret, "its secret or its job id is another"},
      {"wrong job id", &wrong_job, "its secret or its job id is another"},
      {"duplicate rank", &duplicate_rank, "already"},
      {"rank out of range", &rank_out_of_range, "rank 99"},
      {"random bytes", &random_noise, "it speaks another protocol"},
      {"huge lengths", &huge_lengths, "it announces 4294967295 bytes in a message of 32"},
      {"half-open connections", &half_open, "too many connections have not introduced themselves"},
      {"a slow connection", &slow, "it did not introduce itself before all had come"},
  };
  return attacks;
}

}  // namespace tessera::distributed
