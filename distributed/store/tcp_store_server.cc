#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <thread>

#include "tessera/distributed/store/store_message.h"
#include "tessera/distributed/store/tcp_store.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAfterRefusedAccept{50};
constexpr std::uint64_t kLongestWait = 1LL << 40;  // ms

// Of a peer's text, what a log can take.
std::string printable(const std::string& text) {
  constexpr std::size_t kMost = 100;
  std::string out = text.substr(0, kMost);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

struct Wait {
  std::vector<std::string> keys;
  Clock::time_point deadline;
};

struct Client {
  Socket socket;
  std::string address;
  AuthenticatedChannel channel;
  Clock::time_point since = Clock::now();
  std::string name{};  // empty: a stranger
  std::optional<Wait> waiting{};
  std::string will_key{};
  std::string will_value{};
  bool gone = false;
};

}  // namespace

class TcpStoreServer::Impl {
 public:
  explicit Impl(const Options& options);
  ~Impl();
  Endpoint endpoint() const { return endpoint_; }
  bool wait_until_left(milliseconds timeout);

 private:
  void serve();
  void poll_once();
  int poll_milliseconds() const;
  void accept_all();
  void read_from(Client& client);
  void write_to(Client& client);
  void take(Client& client, const Frame& frame);
  bool serve_request(Client& client, StoreMessage& request);
  void greet(Client& client, const StoreMessage& request);
  std::string objection(const std::string& run, const std::string& name) const;
  void reply(Client& client, FrameType type, const std::vector<std::string>& parts = {});
  void drop(Client& client, const std::string& reason);
  void drop_oldest_stranger();
  void finish_waits();
  void remove_gone();

  const Options options_;
  const Key key_;
  DropLog log_;
  Socket listener_;
  Endpoint endpoint_;
  Socket wake_;
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::string> came_;  // names, and from where
  Clock::time_point accept_again_{};
  std::mutex mutex_;
  std::condition_variable left_;
  int present_ = 0;  // guarded by mutex_, as is stop_
  bool stop_ = false;
  std::thread thread_;
};

// The address that it is bound to counts: a name might lead elsewhere by now.
Socket listen_with_secret(const Endpoint& at, const Credentials& credentials) {
  check_has_secret(at, credentials);
  Socket listener = listen_at(at);
  check_has_secret({.host = listener.local_address(), .port = at.port}, credentials);
  return listener;
}

TcpStoreServer::Impl::Impl(const Options& options)
    : options_(options),
      key_(options.credentials.key(kStorePurpose)),
      log_("the store", options.log),
      listener_(listen_with_secret(options.at, options.credentials)),
      endpoint_{.host = listener_.local_address(), .port = listener_.local_port()},
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK_AS(Error, bool(wake_), "rendezvous", "cannot make an event: {}",
                   std::strerror(errno));
  thread_ = std::thread([this] { serve(); });
}

TcpStoreServer::Impl::~Impl() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  eventfd_write(wake_.fd(), 1);
  thread_.join();  // Untimed: the event has woken it, and its sockets do not block
}

bool TcpStoreServer::Impl::wait_until_left(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return left_.wait_for(lock, timeout, [this] { return present_ == 0; });
}

void TcpStoreServer::Impl::serve() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    poll_once();
    finish_waits();
    remove_gone();
  }
}

void TcpStoreServer::Impl::poll_once() {
  const bool accepting = listener_ && Clock::now() >= accept_again_;
  std::vector<pollfd> wanted = {
      {.fd = wake_.fd(), .events = POLLIN, .revents = 0},
      {.fd = accepting ? listener_.fd() : -1, .events = POLLIN, .revents = 0}};
  for (const Client& client : clients_) {
    // One that does not take its replies is not asked for more requests.
    const int events = client.channel.output().empty() ? POLLIN : POLLOUT;
    wanted.push_back(
        {.fd = client.socket.fd(), .events = static_cast<short>(events), .revents = 0});
  }
  if (poll(wanted.data(), wanted.size(), poll_milliseconds()) <= 0) return;
  std::size_t i = 2;
  for (Client& client : clients_) {
    const short seen = wanted[i++].revents;
    if ((seen & POLLOUT) != 0) write_to(client);
    if ((seen & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(client);
  }
  if (wanted[1].revents != 0) accept_all();
}

// Until the first deadline; -1 where there is none.
int TcpStoreServer::Impl::poll_milliseconds() const {
  std::optional<Clock::time_point> first;
  const auto note = [&first](Clock::time_point time) {
    first = first ? std::min(*first, time) : time;
  };
  for (const Client& client : clients_) {
    if (client.waiting) note(client.waiting->deadline);
    if (client.name.empty()) note(client.since + options_.introduction);
  }
  if (accept_again_ > Clock::now()) note(accept_again_);
  if (!first) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*first - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000000));
}

void TcpStoreServer::Impl::accept_all() {
  for (;;) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
        accept_again_ = Clock::now() + kAfterRefusedAccept;  // no descriptors: not at full speed
      return;
    }
    drop_oldest_stranger();
    watch_peer(socket);
    std::string address = socket.peer_address();
    clients_.push_back(
        {.socket = std::move(socket),
         .address = std::move(address),
         .channel = {AuthenticatedChannel::Side::kServer, key_, random_bytes(kNonceBytes)}});
  }
}

// Where there is no room for one more. The newest stays: processes of the run introduce themselves
// at once.
void TcpStoreServer::Impl::drop_oldest_stranger() {
  std::size_t strangers = 0;
  Client* oldest = nullptr;
  for (Client& client : clients_) {
    if (client.gone || !client.name.empty()) continue;
    ++strangers;
    if (oldest == nullptr) oldest = &client;
  }
  if (strangers >= options_.expected.size() + kMostStrangers)
    drop(*oldest, "too many connections have not introduced themselves");
}

void TcpStoreServer::Impl::drop(Client& client, const std::string& reason) {
  if (client.gone) return;
  client.gone = true;
  log_.note(client.address, reason, Clock::now());
}

void TcpStoreServer::Impl::read_from(Client& client) {
  std::array<char, kMaxUnauthenticated> bytes{};
  const ssize_t count = recv(client.socket.fd(), bytes.data(), bytes.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    if (client.name.empty()) drop(client, "it left without introducing itself");
    client.gone = true;
    return;
  }
  client.channel.receive({bytes.data(), static_cast<std::size_t>(count)});
  while (!client.gone) {
    const std::optional<Frame> frame = client.channel.next();
    if (!frame) break;
    take(client, *frame);
  }
  write_to(client);
  if (!client.channel.problem().empty()) drop(client, client.channel.problem());
}

void TcpStoreServer::Impl::take(Client& client, const Frame& frame) {
  std::optional<std::vector<std::string>> parts = decode_parts(frame.payload);
  if (!parts) return drop(client, "its message is malformed");
  StoreMessage message = {frame.type, std::move(*parts)};
  if (client.name.empty()) return greet(client, message);
  if (!serve_request(client, message)) drop(client, "its request is malformed");
}

// False if it is no request.
bool TcpStoreServer::Impl::serve_request(Client& client, StoreMessage& request) {
  std::vector<std::string>& parts = request.parts;
  const std::size_t count = parts.size();
  if (request.type == FrameType::kGet && count == 1) {
    const auto found = values_.find(parts[0]);
    if (found == values_.end()) return reply(client, FrameType::kNone), true;
    return reply(client, FrameType::kOk, {found->second}), true;
  }
  if (request.type == FrameType::kWait && count >= 1 && parts[0].size() == kWaitTimeBytes) {
    const std::uint64_t time = std::min(read_number(parts[0], kWaitTimeBytes), kLongestWait);
    parts.erase(parts.begin());
    client.waiting = {.keys = std::move(parts), .deadline = Clock::now() + milliseconds(time)};
    return true;
  }
  if (count != 2 || parts[0].size() > kMaxKeyBytes || parts[1].size() > kMaxValueBytes)
    return false;
  if (request.type == FrameType::kSet) {
    const bool is_new = values_.emplace(parts[0], parts[1]).second;
    return reply(client, is_new ? FrameType::kOk : FrameType::kKept), true;
  }
  if (request.type != FrameType::kWill) return false;
  client.will_key = parts[0];
  client.will_value = parts[1];
  return reply(client, FrameType::kOk), true;
}

void TcpStoreServer::Impl::greet(Client& client, const StoreMessage& request) {
  if (request.type != FrameType::kJoin || request.parts.size() != 2)
    return drop(client, "it does not introduce itself");
  const std::string &run = request.parts[0], &name = request.parts[1];
  if (const std::string why = objection(run, name); !why.empty()) {
    reply(client, FrameType::kRefused, {why});
    return drop(client, why);
  }
  client.name = name;
  came_.emplace(client.name, client.address);
  {
    std::lock_guard lock(mutex_);
    ++present_;
  }
  reply(client, FrameType::kOk);
  if (came_.size() < options_.expected.size()) return;
  listener_.close();
  for (Client& other : clients_)
    if (other.name.empty()) drop(other, "it did not introduce itself before all had come");
}

std::string TcpStoreServer::Impl::objection(const std::string& run, const std::string& name) const {
  if (run != options_.run)
    return fmt::format("it belongs to a run of {}, but here is one of {}", printable(run),
                       options_.run);
  const auto& names = options_.expected;
  if (std::find(names.begin(), names.end(), name) == names.end())
    return fmt::format("{} is not one of this run's processes", printable(name));
  const auto earlier = came_.find(name);
  if (earlier == came_.end()) return "";
  return fmt::format(
      "{} has come already, from {}; give each node a --node-rank of its own, and each run a port "
      "of its own",
      name, earlier->second);
}

void TcpStoreServer::Impl::reply(Client& client, FrameType type,
                                 const std::vector<std::string>& parts) {
  client.channel.send(type, encode_parts(parts));
  write_to(client);
}

void TcpStoreServer::Impl::write_to(Client& client) {
  std::string& bytes = client.channel.output();
  while (!bytes.empty()) {
    const ssize_t count = send(client.socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) {
      client.gone = true;
      return;
    }
    bytes.erase(0, static_cast<std::size_t>(count));
  }
}

// Keys that have come are not looked up again: values stay.
void TcpStoreServer::Impl::finish_waits() {
  const auto now = Clock::now();
  for (Client& client : clients_) {
    if (!client.waiting) continue;
    std::vector<std::string>& missing = client.waiting->keys;
    std::erase_if(missing, [this](const std::string& key) { return values_.contains(key); });
    if (!missing.empty() && now < client.waiting->deadline) continue;
    const std::vector<std::string> keys = std::move(missing);
    client.waiting.reset();
    reply(client, FrameType::kOk, keys);
  }
}

void TcpStoreServer::Impl::remove_gone() {
  const auto now = Clock::now();
  bool willed = false;
  int left = 0;
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool stranger = client->name.empty();
    if (stranger && now >= client->since + options_.introduction)
      drop(*client, "it has not introduced itself in time");
    if (!client->gone) {
      ++client;
      continue;
    }
    if (!client->will_key.empty()) {
      values_.emplace(client->will_key, client->will_value);
      willed = true;
    }
    if (!stranger) ++left;
    client = clients_.erase(client);
  }
  if (willed) finish_waits();
  if (left == 0) return;
  std::lock_guard lock(mutex_);
  present_ -= left;
  left_.notify_all();
}

TcpStoreServer::TcpStoreServer(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
TcpStoreServer::~TcpStoreServer() = default;
Endpoint TcpStoreServer::endpoint() const { return impl_->endpoint(); }
bool TcpStoreServer::wait_until_left(milliseconds timeout) {
  return impl_->wait_until_left(timeout);
}

}  // namespace tessera::distributed
