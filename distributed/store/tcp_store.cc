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

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{50};
constexpr milliseconds kOneAttempt{3000};
constexpr milliseconds kAnswer{10000};  // of a server that has nothing to wait for
constexpr milliseconds kLongestPoll{1000000};

milliseconds left_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::clamp(left, milliseconds(0), kLongestPoll);
}

double seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

TcpStore::TcpStore(const Options& options) : options_(options) { connect(); }

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
      if (greet(std::min(left_until(deadline) + kRetry, kAnswer))) return;
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

// False when the connection ends: the server may have been the last run's, about to go.
bool TcpStore::greet(milliseconds timeout) {
  std::optional<StoreMessage> answer;
  reader_ = {};
  try {
    send_all(encode({kHello, kProtocol, options_.run, options_.name}));
    answer = receive(timeout);
  } catch (const DataError& error) {
    throw_error<Error>("rendezvous", "the program that replies at {} is not the store of a run: {}",
                       options_.at.str(), error.what());
  } catch (const Error&) {
    return false;
  }
  TESSERA_CHECK_AS(
      Error, answer.has_value(), "rendezvous",
      "the program that listens at {} does not reply; it may not be the store of a run",
      options_.at.str());
  const bool refused = answer->size() == 2 && answer->front() == kRefused;
  TESSERA_CHECK_AS(Error, !refused, "rendezvous", "{} was refused at {}: {}", options_.name,
                   options_.at.str(), answer->back());
  return true;
}

bool TcpStore::set(const std::string& key, const std::string& value) {
  return ask({kSet, key, value}, milliseconds(0)).front() == kOk;
}

std::optional<std::string> TcpStore::get(const std::string& key) {
  const StoreMessage answer = ask({kGet, key}, milliseconds(0));
  if (answer.size() != 2) return std::nullopt;
  return answer.back();
}

std::vector<std::string> TcpStore::wait(const std::vector<std::string>& keys,
                                        milliseconds timeout) {
  StoreMessage request = {kWait, std::to_string(std::max<std::int64_t>(0, timeout.count()))};
  request.insert(request.end(), keys.begin(), keys.end());
  StoreMessage answer = ask(request, timeout);
  answer.erase(answer.begin());
  return answer;
}

void TcpStore::leave_will(const std::string& key, const std::string& value) {
  ask({kWill, key, value}, milliseconds(0));
}

void TcpStore::shut_down() noexcept { shutdown(socket_.fd(), SHUT_RDWR); }

StoreMessage TcpStore::ask(const StoreMessage& request, milliseconds timeout) {
  const std::string bytes = encode(request);
  std::lock_guard lock(mutex_);
  send_all(bytes);
  std::optional<StoreMessage> answer = receive(timeout + kAnswer);
  if (!answer || answer->empty()) throw_lost("it does not reply");
  return std::move(*answer);
}

void TcpStore::send_all(const std::string& bytes) {
  const auto deadline = Clock::now() + kAnswer;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        send(socket_.fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw_lost(std::strerror(errno));
    if (Clock::now() >= deadline) throw_lost("it takes no more data");
    pollfd wanted = {.fd = socket_.fd(), .events = POLLOUT, .revents = 0};
    poll(&wanted, 1, static_cast<int>(left_until(deadline).count()));
  }
}

// Empty if no reply comes in time.
std::optional<StoreMessage> TcpStore::receive(milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::array<char, 4096> bytes{};
  for (;;) {
    if (std::optional<StoreMessage> message = reader_.next()) return message;
    pollfd wanted = {.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left_until(deadline).count()));
    if (ready == 0 && Clock::now() >= deadline) return std::nullopt;
    if (ready <= 0) continue;
    const ssize_t count = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
    if (count == 0) throw_lost("the connection was closed");
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw_lost(std::strerror(errno));
    if (count > 0) reader_.add({bytes.data(), static_cast<std::size_t>(count)});
  }
}

void TcpStore::throw_lost(const std::string& why) const {
  throw_error<Error>("rendezvous", "the store at {} is gone: {}", options_.at.str(), why);
}

}  // namespace tessera::distributed
