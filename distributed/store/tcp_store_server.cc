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

// Clients that have not sent their name: how many may be connected, and for how long.
constexpr int kMostStrangers = 64;
constexpr milliseconds kIntroduction{10000};
constexpr milliseconds kAfterRefusedAccept{50};
constexpr std::int64_t kLongestWait = 1LL << 40;  // ms

struct Wait {
  std::vector<std::string> keys;
  Clock::time_point deadline;
};

struct Client {
  Socket socket;
  std::string address;
  Clock::time_point since = Clock::now();
  std::string name{};  // empty: a stranger
  MessageReader reader{};
  std::string unsent{};
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
  void answer(Client& client, const StoreMessage& request);
  void greet(Client& client, const StoreMessage& request);
  std::string objection(const StoreMessage& hello) const;
  void reply(Client& client, const StoreMessage& message);
  void set(const std::string& key, const std::string& value);
  void answer_waits();
  void remove_gone();

  const Options options_;
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

TcpStoreServer::Impl::Impl(const Options& options)
    : options_(options),
      listener_(listen_at(options.at)),
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
  thread_.join();
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
    answer_waits();
    remove_gone();
  }
}

void TcpStoreServer::Impl::poll_once() {
  const bool accepting = listener_ && Clock::now() >= accept_again_;
  std::vector<pollfd> wanted = {
      {.fd = wake_.fd(), .events = POLLIN, .revents = 0},
      {.fd = accepting ? listener_.fd() : -1, .events = POLLIN, .revents = 0}};
  for (const Client& client : clients_) {
    const int events = POLLIN | (client.unsent.empty() ? 0 : POLLOUT);
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
    if (client.name.empty()) note(client.since + kIntroduction);
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
    const auto strangers = std::count_if(clients_.begin(), clients_.end(),
                                         [](const Client& client) { return client.name.empty(); });
    if (strangers >= kMostStrangers) continue;
    watch_peer(socket);
    std::string address = socket.peer_address();
    clients_.push_back({.socket = std::move(socket), .address = std::move(address)});
  }
}

void TcpStoreServer::Impl::read_from(Client& client) {
  std::array<char, 4096> bytes{};
  const ssize_t count = recv(client.socket.fd(), bytes.data(), bytes.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    client.gone = true;
    return;
  }
  client.reader.add({bytes.data(), static_cast<std::size_t>(count)});
  try {
    while (!client.gone) {
      const std::optional<StoreMessage> request = client.reader.next();
      if (!request) return;
      answer(client, *request);
    }
  } catch (const Error&) {  // no message of ours
    client.gone = true;
  }
}

void TcpStoreServer::Impl::answer(Client& client, const StoreMessage& request) {
  const std::string word = request.empty() ? "" : request[0];
  const std::size_t parts = request.size();
  if (client.name.empty()) {
    greet(client, request);
  } else if (word == kSet && parts == 3) {
    const bool is_new = !values_.contains(request[1]);
    if (is_new) set(request[1], request[2]);
    reply(client, {is_new ? kOk : kKept});
  } else if (word == kGet && parts == 2) {
    const auto found = values_.find(request[1]);
    reply(client, found == values_.end() ? StoreMessage{kNone} : StoreMessage{kOk, found->second});
  } else if (word == kWait && parts >= 2) {
    const std::int64_t time =
        std::clamp<std::int64_t>(std::atoll(request[1].c_str()), 0, kLongestWait);
    client.waiting = {.keys = {request.begin() + 2, request.end()},
                      .deadline = Clock::now() + milliseconds(time)};
  } else if (word == kWill && parts == 3) {
    client.will_key = request[1];
    client.will_value = request[2];
    reply(client, {kOk});
  } else {
    client.gone = true;
  }
}

void TcpStoreServer::Impl::greet(Client& client, const StoreMessage& request) {
  if (request.size() != 4 || request[0] != kHello || request[1] != kProtocol ||
      request[3].empty()) {
    client.gone = true;
    return;
  }
  if (const std::string why = objection(request); !why.empty())
    return reply(client, {kRefused, why});
  client.name = request[3];
  came_.emplace(client.name, client.address);
  {
    std::lock_guard lock(mutex_);
    ++present_;
  }
  reply(client, {kOk});
  if (came_.size() >= static_cast<std::size_t>(options_.clients)) listener_.close();
}

std::string TcpStoreServer::Impl::objection(const StoreMessage& hello) const {
  const std::string &run = hello[2], &name = hello[3];
  if (run != options_.run)
    return fmt::format("it belongs to a run of {}, but here is one of {}", run, options_.run);
  const auto earlier = came_.find(name);
  if (earlier == came_.end()) return "";
  return fmt::format(
      "{} has come already, from {}; give each node a --node-rank of its own, and each run a port "
      "of its own",
      name, earlier->second);
}

void TcpStoreServer::Impl::reply(Client& client, const StoreMessage& message) {
  client.unsent += encode(message);
  write_to(client);
}

void TcpStoreServer::Impl::write_to(Client& client) {
  while (!client.unsent.empty()) {
    const ssize_t count =
        send(client.socket.fd(), client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) {
      client.gone = true;
      return;
    }
    client.unsent.erase(0, static_cast<std::size_t>(count));
  }
}

void TcpStoreServer::Impl::set(const std::string& key, const std::string& value) {
  values_.emplace(key, value);
}

void TcpStoreServer::Impl::answer_waits() {
  const auto now = Clock::now();
  for (Client& client : clients_) {
    if (!client.waiting) continue;
    StoreMessage message = {kOk};
    for (const std::string& key : client.waiting->keys) {
      if (!values_.contains(key)) message.push_back(key);
    }
    if (message.size() > 1 && now < client.waiting->deadline) continue;
    client.waiting.reset();
    reply(client, message);
  }
}

void TcpStoreServer::Impl::remove_gone() {
  const auto now = Clock::now();
  bool willed = false;
  int left = 0;
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool stranger = client->name.empty();
    if (!client->gone && !(stranger && now >= client->since + kIntroduction)) {
      ++client;
      continue;
    }
    if (!client->will_key.empty()) {
      set(client->will_key, client->will_value);
      willed = true;
    }
    if (!stranger) ++left;
    client = clients_.erase(client);
  }
  if (willed) answer_waits();
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
