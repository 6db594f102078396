#include "tessera/distributed/transports/rank_sockets.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/store/authenticated_channel.h"
#include "tessera/distributed/store/gather_values.h"
#include "tessera/distributed/transports/connect_error.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kRankBytes = 4;
constexpr milliseconds kOneAttempt{1000};
constexpr milliseconds kRetry{50};

// The sockets of one rank while it connects: its listener, and connections under way.
class RankSockets {
 public:
  RankSockets(const RankSocketsOptions& options, const std::string& group);
  std::vector<Socket> connect();

 private:
  struct Link {
    Socket socket;
    std::string address;
    AuthenticatedChannel channel;
    int peer = -1;  // of a connection that this rank made
    Clock::time_point since = Clock::now();
    bool has_joined = false;
    bool done = false;
  };

  std::vector<std::string> find_addresses();
  [[noreturn]] void throw_missing(std::vector<int> missing) const;
  std::vector<int> ranks_without_socket() const;
  void dial(int peer);
  void dial_due();
  void dial_again(Link& link);
  void poll_once();
  int poll_milliseconds() const;
  void accept_all();
  void drop_oldest_stranger();
  void drop(Link& link, const std::string& reason);
  void read_from(Link& link);
  void write_to(Link& link);
  void go_on(Link& link);
  void join(Link& link, const Frame& frame);
  void finish(Link& link, int peer);
  void remove_done();

  const RankSocketsOptions& options_;
  const std::string& group_;
  const Clock::time_point deadline_;
  const Key key_;
  DropLog log_;
  Socket listener_;
  std::vector<Endpoint> addresses_;
  std::vector<Socket> sockets_;
  std::map<int, Clock::time_point> due_;  // ranks to connect to, and when
  std::list<Link> links_;
};

RankSockets::RankSockets(const RankSocketsOptions& options, const std::string& group)
    : options_(options),
      group_(group),
      deadline_(Clock::now() + options.timeout),
      key_(options.credentials.key(kRanksPurpose)),
      log_(fmt::format("rank {}", options.rank), options.log),
      sockets_(static_cast<std::size_t>(options.size)) {
  const Endpoint at{.host = options.address};
  check_has_secret(at, options.credentials);
  listener_ = listen_at(at);
}

std::vector<std::string> RankSockets::find_addresses() {
  const Endpoint mine{.host = options_.address, .port = listener_.local_port()};
  GatherRequest request{.name = "joined",
                        .rank = options_.rank,
                        .ranks = std::vector<int>(static_cast<std::size_t>(options_.size)),
                        .value = mine.str(),
                        .timeout = options_.timeout};
  std::iota(request.ranks.begin(), request.ranks.end(), 0);
  GatheredValues gathered = gather_values(*options_.store, request);
  if (gathered.is_taken)
    throw_cannot_connect<CollectiveError>(
        options_.rank, group_, fmt::format("another rank {} has joined already", options_.rank));
  if (!gathered.missing.empty()) throw_missing(std::move(gathered.missing));
  return std::move(gathered.values);
}

void RankSockets::throw_missing(std::vector<int> missing) const {
  throw_cannot_connect<CollectiveError>(
      options_.rank, group_,
      fmt::format("{} did not come within {:g} s", ranks_text(missing),
                  std::chrono::duration<double>(options_.timeout).count()));
}

std::vector<Socket> RankSockets::connect() {
  for (const std::string& address : find_addresses())
    addresses_.push_back(parse_endpoint("the store", address, 0));
  for (int peer = 0; peer < options_.rank; ++peer) due_[peer] = Clock::now();
  for (;;) {
    dial_due();
    const std::vector<int> missing = ranks_without_socket();
    if (missing.empty()) break;
    if (Clock::now() >= deadline_) throw_missing(missing);
    poll_once();
    remove_done();
  }
  for (Link& link : links_) drop(link, "it did not introduce itself before all had come");
  return std::move(sockets_);
}

std::vector<int> RankSockets::ranks_without_socket() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank && !sockets_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

void RankSockets::dial_due() {
  const auto now = Clock::now();
  while (true) {
    const auto found = std::find_if(due_.begin(), due_.end(),
                                    [now](const auto& each) { return each.second <= now; });
    if (found == due_.end()) return;
    const int peer = found->first;
    due_.erase(found);
    dial(peer);
  }
}

void RankSockets::dial(int peer) {
  Connecting attempt = connect_to(addresses_[static_cast<std::size_t>(peer)], kOneAttempt);
  if (!attempt.socket) {
    due_[peer] = Clock::now() + kRetry;
    return;
  }
  links_.push_back(
      {.socket = std::move(attempt.socket),
       .address = addresses_[static_cast<std::size_t>(peer)].str(),
       .channel = {AuthenticatedChannel::Side::kClient, key_, random_bytes(kNonceBytes)},
       .peer = peer});
  write_to(links_.back());
}

// After a connection that ended: the peer may have dropped it among many that said nothing.
void RankSockets::dial_again(Link& link) {
  if (link.done) return;
  link.done = true;
  due_[link.peer] = Clock::now() + kRetry;
}

void RankSockets::poll_once() {
  std::vector<pollfd> wanted = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
  for (const Link& link : links_) {
    const int events = link.channel.output().empty() ? POLLIN : POLLOUT;
    wanted.push_back({.fd = link.socket.fd(), .events = static_cast<short>(events), .revents = 0});
  }
  if (poll(wanted.data(), wanted.size(), poll_milliseconds()) <= 0) return;
  std::size_t i = 1;
  for (Link& link : links_) {
    const short seen = wanted[i++].revents;
    if ((seen & POLLOUT) != 0) write_to(link);
    if ((seen & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(link);
  }
  if (wanted[0].revents != 0) accept_all();
}

// Until the first deadline.
int RankSockets::poll_milliseconds() const {
  Clock::time_point first = deadline_;
  for (const auto& [peer, time] : due_) first = std::min(first, time);
  for (const Link& link : links_) first = std::min(first, link.since + options_.introduction);
  const auto left = std::chrono::ceil<milliseconds>(first - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000000));
}

void RankSockets::accept_all() {
  for (;;) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    drop_oldest_stranger();
    std::string address = socket.peer_address();
    links_.push_back(
        {.socket = std::move(socket),
         .address = std::move(address),
         .channel = {AuthenticatedChannel::Side::kServer, key_, random_bytes(kNonceBytes)}});
  }
}

// Where there is no room for one more. The newest stays: ranks introduce themselves at once.
void RankSockets::drop_oldest_stranger() {
  std::size_t strangers = 0;
  Link* oldest = nullptr;
  for (Link& link : links_) {
    if (link.done || link.peer >= 0) continue;
    ++strangers;
    if (oldest == nullptr) oldest = &link;
  }
  if (strangers >= static_cast<std::size_t>(options_.size) + RankSocketsOptions::kMostStrangers)
    drop(*oldest, "too many connections have not introduced themselves");
}

void RankSockets::drop(Link& link, const std::string& reason) {
  if (link.done) return;
  link.done = true;
  log_.note(link.address, reason, Clock::now());
}

// No more than the channel needs: what follows its last frame is for the transport.
void RankSockets::read_from(Link& link) {
  std::array<char, kMaxUnauthenticated> bytes{};
  while (!link.done) {
    const std::size_t most = std::min(bytes.size(), link.channel.wanted());
    const ssize_t count = recv(link.socket.fd(), bytes.data(), most, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      if (link.peer >= 0) return dial_again(link);
      return drop(link, "it left without introducing itself");
    }
    link.channel.receive({bytes.data(), static_cast<std::size_t>(count)});
    go_on(link);
  }
}

void RankSockets::go_on(Link& link) {
  if (link.channel.is_open() && link.peer >= 0 && !link.has_joined) {
    std::string ranks;
    append_number(ranks, static_cast<std::uint64_t>(options_.rank), kRankBytes);
    append_number(ranks, static_cast<std::uint64_t>(link.peer), kRankBytes);
    link.channel.send(FrameType::kJoin, ranks);
    link.has_joined = true;
  }
  const std::optional<Frame> frame = link.channel.next();
  if (frame) join(link, *frame);
  if (link.done) return;
  write_to(link);
  const std::string& problem = link.channel.problem();
  if (problem.empty()) return;
  if (link.peer < 0) return drop(link, problem);
  throw_cannot_connect<CollectiveAborted>(
      options_.rank, group_, fmt::format("rank {} at {}: {}", link.peer, link.address, problem));
}

// The first frame of a peer that has proved that it knows the secret.
void RankSockets::join(Link& link, const Frame& frame) {
  if (link.peer >= 0) {
    if (frame.type == FrameType::kOk) return finish(link, link.peer);
    throw_cannot_connect<CollectiveAborted>(
        options_.rank, group_,
        fmt::format("rank {} at {} refuses: {}", link.peer, link.address, frame.payload));
  }
  if (frame.type != FrameType::kJoin || frame.payload.size() != 2 * kRankBytes)
    return drop(link, "it does not introduce itself");
  const std::uint64_t from = read_number(frame.payload, kRankBytes);
  const std::uint64_t to =
      read_number(std::string_view(frame.payload).substr(kRankBytes), kRankBytes);
  std::string why;
  if (to != static_cast<std::uint64_t>(options_.rank))
    why = fmt::format("it looks for rank {}, this is rank {}", to, options_.rank);
  else if (from <= to || from >= sockets_.size())
    why = fmt::format("it says that it is rank {}, of which rank {} of {} expects no connection",
                      from, options_.rank, options_.size);
  else if (sockets_[from])
    why = fmt::format("rank {} is connected already", from);
  link.channel.send(why.empty() ? FrameType::kOk : FrameType::kRefused, why);
  write_to(link);
  if (!why.empty()) return drop(link, why);
  finish(link, static_cast<int>(from));
}

void RankSockets::write_to(Link& link) {
  std::string& bytes = link.channel.output();
  while (!link.done && !bytes.empty()) {
    const ssize_t count = send(link.socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count >= 0) {
      bytes.erase(0, static_cast<std::size_t>(count));
      continue;
    }
    if (link.peer >= 0) return dial_again(link);
    drop(link, std::strerror(errno));
  }
}

// The handshake's few bytes fit into the socket's buffer, so nothing is left to be sent.
void RankSockets::finish(Link& link, int peer) {
  if (link.done) return;
  link.done = true;
  sockets_[static_cast<std::size_t>(peer)] = std::move(link.socket);
}

void RankSockets::remove_done() {
  const auto now = Clock::now();
  for (Link& link : links_) {
    if (link.done || now < link.since + options_.introduction) continue;
    if (link.peer >= 0) {
      dial_again(link);
    } else {
      drop(link, "it has not introduced itself in time");
    }
  }
  links_.remove_if([](const Link& link) { return link.done; });
}

}  // namespace

std::vector<Socket> connect_ranks(const RankSocketsOptions& options, const std::string& group) {
  return RankSockets(options, group).connect();
}

}  // namespace tessera::distributed
