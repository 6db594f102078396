// The server of a TcpStore and processes that do not belong to the run. That a whole run does not
// suffer is tested in tests/distributed/launch.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <mutex>

#include "tessera/distributed/store/store_message.h"
#include "tessera/distributed/store/tcp_store.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/distributed/store/attacks.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const Credentials kOurs{.secret = "a secret of the run", .job = "job 7"};

// A server of a run of two clients, "node 0" and "node 1", and its log.
class Server {
 public:
  explicit Server(milliseconds introduction = TcpStoreServer::kIntroduction)
      : server_(TcpStoreServer::Options{.at = {.host = "127.0.0.1"},
                                        .run = "a run",
                                        .expected = {"node 0", "node 1"},
                                        .credentials = kOurs,
                                        .log =
                                            [this](const std::string& line) {
                                              const std::lock_guard lock(mutex_);
                                              log_ += line + "\n";
                                            },
                                        .introduction = introduction}) {}

  std::unique_ptr<TcpStore> join(const std::string& name,
                                 const Credentials& credentials = kOurs) const {
    return std::make_unique<TcpStore>(TcpStore::Options{.at = at(),
                                                        .run = "a run",
                                                        .name = name,
                                                        .credentials = credentials,
                                                        .timeout = milliseconds(5000)});
  }
  Endpoint at() const { return server_.endpoint(); }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  bool logs(const std::string& text) {
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (log().find(text) == std::string::npos && Clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(2));
    return log().find(text) != std::string::npos;
  }

 private:
  std::mutex mutex_;
  std::string log_;
  TcpStoreServer server_;
};

}  // namespace

TEST_CASE("a client with another secret or job id is told so", "[server]") {
  Server server;
  const Credentials theirs = GENERATE(Credentials{.secret = "another secret", .job = "job 7"},
                                      Credentials{.secret = "a secret of the run", .job = "job 8"});
  CHECK_THROWS_WITH(
      server.join("node 0", theirs),
      Contains("[rendezvous] node 0 was refused at " + server.at().str() +
               ": the secret or the job id is another there; give all nodes the same secret "
               "(TESSERA_SECRET or --rdzv-secret-file) and the same --rdzv-id"));
  CHECK(
      server.logs("the store dropped a connection from 127.0.0.1: its secret or its job id is "
                  "another\n"));
  CHECK(server.join("node 0")->set("k", "v"));
}

TEST_CASE("neither end listens or connects beyond the host without a secret", "[server]") {
  CHECK_THROWS_WITH(
      TcpStoreServer({.at = {.host = "0.0.0.0"}}),
      Contains("other hosts can reach 0.0.0.0:0") && Contains("openssl rand -hex 32"));
  CHECK_THROWS_AS(TcpStore({.at = {.host = "192.0.2.1", .port = 1}, .name = "c"}), InvalidArgument);
}

TEST_CASE("connections that say nothing do not keep others out", "[server]") {
  Server server;
  std::vector<Socket> strangers;
  const std::size_t most = TcpStoreServer::kMostStrangers + 2;
  for (std::size_t i = 0; i < most + 1; ++i) strangers.push_back(raw_connection(server.at()));
  CHECK(closed_within(strangers.front(), milliseconds(5000)));
  CHECK(server.logs("too many connections have not introduced themselves"));
  const auto first = server.join("node 0");
  CHECK(first->set("k", "v"));
  CHECK_FALSE(closed_within(strangers.back(), milliseconds(0)));
  const auto second = server.join("node 1");
  for (const Socket& stranger : strangers) CHECK(closed_within(stranger, milliseconds(5000)));
}

TEST_CASE("a connection that does not introduce itself in time is dropped", "[server]") {
  Server server(milliseconds(100));
  const bool shakes_hands = GENERATE(false, true);
  const auto start = Clock::now();
  if (shakes_hands) {
    RawClient client(server.at(), kOurs, std::string(kStorePurpose));
    REQUIRE(client.shake_hands());
    CHECK(closed_within(client.socket(), milliseconds(5000)));
  } else {
    CHECK(closed_within(raw_connection(server.at()), milliseconds(5000)));
  }
  CHECK(Clock::now() - start >= milliseconds(100));
  CHECK(server.logs("from 127.0.0.1: it has not introduced itself in time\n"));
  CHECK(server.join("node 0")->set("k", "v"));
}

TEST_CASE("a slow connection gains nothing by what it sends", "[server]") {
  Server server(milliseconds(1500));
  const Socket slow = raw_connection(server.at());
  CHECK(send_slowly(slow, first_message(), milliseconds(5000)));
  CHECK(server.logs("it has not introduced itself in time"));
}

TEST_CASE("a client that is no client is dropped, and the others are served", "[server]") {
  Server server;
  const auto first = server.join("node 0");
  const auto talk = [&](FrameType type, const std::string& payload) {
    RawClient client(server.at(), kOurs, std::string(kStorePurpose));
    REQUIRE(client.shake_hands());
    client.send(type, payload);
    CHECK(closed_within(client.socket(), milliseconds(5000)));
  };
  talk(FrameType::kSet, encode_parts({"k", "v"}));
  CHECK(server.logs("it does not introduce itself"));
  talk(FrameType::kJoin, "\xFF\xFF\xFF\xFF");
  CHECK(server.logs("its message is malformed"));
  talk(FrameType::kJoin, encode_parts({"a run"}));
  talk(FrameType::kJoin, encode_parts({"a\nrun", "node 1"}));
  CHECK(server.logs("it belongs to a run of a?run, but here is one of a run"));
  { const Socket gone = raw_connection(server.at()); }
  CHECK(server.logs("it left without introducing itself"));
  CHECK_FALSE(first->get("k"));
}

TEST_CASE("a member that sends no request is dropped", "[server]") {
  const std::vector<std::pair<FrameType, std::string>> bad = {
      {FrameType::kJoin, encode_parts({"a run", "node 1"})},
      {FrameType::kOk, ""},
      {FrameType::kGet, encode_parts({"a", "b"})},
      {FrameType::kSet, encode_parts({"a"})},
      {FrameType::kSet, encode_parts({std::string(kMaxKeyBytes + 1, 'k'), "v"})},
      {FrameType::kWill, encode_parts({"k", std::string(kMaxValueBytes + 1, 'v')})},
      {FrameType::kWait, encode_parts({"soon", "k"})},
  };
  const auto& [type, payload] = bad[GENERATE(range(0, 7))];
  Server server;
  RawClient client(server.at(), kOurs, std::string(kStorePurpose));
  REQUIRE(client.shake_hands());
  client.send(FrameType::kJoin, encode_parts({"a run", "node 0"}));
  REQUIRE(client.receive());
  client.send(type, payload);
  CHECK(closed_within(client.socket(), milliseconds(5000)));
  CHECK(server.logs("its request is malformed"));
}

}  // namespace tessera::distributed
