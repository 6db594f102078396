#include "tessera/distributed/store/tcp_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tessera/distributed/store/store_message.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetry{50};
constexpr milliseconds kOneAttempt{3000};
constexpr milliseconds kReply{10000};  // of a server that has nothing to wait for
constexpr milliseconds kLongestPoll{1000000};

milliseconds left_until(std::chrono::steady_clock::time_point deadline) {
  const auto now = std::chrono::steady_clock::now();
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - now);
  return std::clamp(left, milliseconds(0), kLongestPoll);
}

double seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

TcpStore::TcpStore(const Options& options) : options_(options) {
  check_has_secret(options_.at, options_.credentials);
  connect();
}

void TcpStore::connect() {
  const auto deadline = Clock::now() + options_.timeout;
  std::string problem;
  do {
    Connecting attempt = connect_to(options_.at, std::min(left_until(deadline), kOneAttempt));
    TESSERA_CHECK_AS(Error, !attempt.is_final, "rendezvous", "cannot reach {}: {}",
                     options_.at.str(), attempt.problem);
    if (attempt.socket) {
      socket_ = std::move(attempt.socket);
      watch_peer(socket_);
      if (greet(std::min(left_until(deadline) + kRetry, kReply))) return;
      attempt.problem = "the connection was closed at once";
    }
    problem = attempt.problem;
    std::this_thread::sleep_for(std::min(kRetry, left_until(deadline)));
  } while (Clock::now() < deadline);
  throw_error<TimeoutError>(
      "rendezvous",
      "there was no reply from {} at {} within {:g} s ({}); start node 0 there, or "
      "correct the address",
      options_.name, options_.at.str(), seconds(options_.timeout), problem);
}

// False when the connection ends: the server may have been the last run's, about to go, or has
// dropped this one among many that said nothing.
bool TcpStore::greet(milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  channel_.emplace(AuthenticatedChannel::Side::kClient, options_.credentials.key(kStorePurpose),
                   random_bytes(kNonceBytes));
  std::optional<StoreMessage> reply;
  try {
    if (shake_hands(deadline)) {
      channel_->send(FrameType::kJoin, encode_parts({options_.run, options_.name}));
      send_all();
      reply = receive(deadline);
    }
  } catch (const Error&) {
    check_greeting();
    return false;
  }
  check_greeting();
  TESSERA_CHECK_AS(
      Error, reply.has_value(), "rendezvous",
      "the program that listens at {} does not reply; it may not be the store of a run",
      options_.at.str());
  const bool refused = reply->type == FrameType::kRefused && !reply->parts.empty();
  TESSERA_CHECK_AS(Error, !refused, "rendezvous", "{} was refused at {}: {}", options_.name,
                   options_.at.str(), reply->parts.back());
  return true;
}

// False if the server does not reply in time, or something is wrong with its reply.
bool TcpStore::shake_hands(Clock::time_point deadline) {
  while (!channel_->is_open()) {
    send_all();
    if (!receive_some(deadline) || !channel_->problem().empty()) return false;
  }
  return true;
}

void TcpStore::check_greeting() const {
  const std::string& problem = channel_->problem();
  TESSERA_CHECK_AS(Error, !channel_->is_rejected(), "rendezvous",
                   "{} was refused at {}: {}; give all nodes the same secret ({} or "
                   "--rdzv-secret-file) and the same --rdzv-id",
                   options_.name, options_.at.str(), problem, kSecretVariable);
  TESSERA_CHECK_AS(Error, problem.empty(), "rendezvous",
                   "the program that replies at {} is not the store of this run: {}",
                   options_.at.str(), problem);
}

bool TcpStore::set(const std::string& key, const std::string& value) {
  check_entry(key, value);
  return ask({FrameType::kSet, {key, value}}, milliseconds(0)).type == FrameType::kOk;
}

std::optional<std::string> TcpStore::get(const std::string& key) {
  StoreMessage reply = ask({FrameType::kGet, {key}}, milliseconds(0));
  if (reply.type != FrameType::kOk || reply.parts.empty()) return std::nullopt;
  return std::move(reply.parts.front());
}

std::vector<std::string> TcpStore::wait(const std::vector<std::string>& keys,
                                        milliseconds timeout) {
  std::string time;
  append_number(time, static_cast<std::uint64_t>(std::max<std::int64_t>(0, timeout.count())),
                kWaitTimeBytes);
  StoreMessage request = {FrameType::kWait, {time}};
  request.parts.insert(request.parts.end(), keys.begin(), keys.end());
  return ask(request, timeout).parts;
}

void TcpStore::leave_will(const std::string& key, const std::string& value) {
  check_entry(key, value);
  ask({FrameType::kWill, {key, value}}, milliseconds(0));
}

void TcpStore::shut_down() noexcept { shutdown(socket_.fd(), SHUT_RDWR); }

StoreMessage TcpStore::ask(const StoreMessage& request, milliseconds timeout) {
  const std::string payload = encode_parts(request.parts);
  std::lock_guard lock(mutex_);
  channel_->send(request.type, payload);
  send_all();
  std::optional<StoreMessage> reply = receive(Clock::now() + timeout + kReply);
  if (!reply) throw_lost("it does not reply");
  return std::move(*reply);
}

void TcpStore::send_all() {
  const auto deadline = Clock::now() + kReply;
  std::string& bytes = channel_->output();
  while (!bytes.empty()) {
    const ssize_t count = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.erase(0, static_cast<std::size_t>(count));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw_lost(std::strerror(errno));
    if (Clock::now() >= deadline) throw_lost("it takes no more data");
    pollfd wanted = {.fd = socket_.fd(), .events = POLLOUT, .revents = 0};
    poll(&wanted, 1, static_cast<int>(left_until(deadline).count()));
  }
}

// False at the deadline.
bool TcpStore::receive_some(Clock::time_point deadline) {
  std::array<char, 4096> bytes{};
  for (;;) {
    pollfd wanted = {.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left_until(deadline).count()));
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready <= 0) continue;
    const ssize_t count = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
    if (count == 0) throw_lost("the connection was closed");
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw_lost(std::strerror(errno));
    if (count < 0) continue;
    channel_->receive({bytes.data(), static_cast<std::size_t>(count)});
    return true;
  }
}

// Empty if no reply comes in time.
std::optional<StoreMessage> TcpStore::receive(Clock::time_point deadline) {
  for (;;) {
    if (std::optional<Frame> frame = channel_->next()) {
      std::optional<std::vector<std::string>> parts = decode_parts(frame->payload);
      if (!parts) throw_lost("its reply is malformed");
      return StoreMessage{frame->type, std::move(*parts)};
    }
    if (!channel_->problem().empty()) throw_lost(channel_->problem());
    if (!receive_some(deadline)) return std::nullopt;
  }
}

void TcpStore::throw_lost(const std::string& why) const {
  throw_error<Error>("rendezvous", "the store at {} is gone: {}", options_.at.str(), why);
}

}  // namespace tessera::distributed
