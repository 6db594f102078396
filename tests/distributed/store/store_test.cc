// The stores through which ranks find each other: by folder and by TCP, over loopback.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "tessera/distributed/store/endpoint.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/store/store_message.h"
#include "tessera/distributed/store/tcp_store.h"
#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Keys = std::vector<std::string>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Stores of several ranks that see the same values.
class Stores {
 public:
  explicit Stores(const std::string& kind, int count = 2) {
    folder_ = (std::filesystem::temp_directory_path() / "store-test-XXXXXX").string();
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    if (kind == "tcp")
      server_ = std::make_unique<TcpStoreServer>(
          TcpStoreServer::Options{.at = {.host = "127.0.0.1"}, .run = "test", .clients = count});
    for (int i = 0; i < count; ++i) {
      if (kind == "folder") stores_.push_back(std::make_unique<FolderStore>(folder_));
      if (kind == "tcp") stores_.push_back(client("client " + std::to_string(i)));
    }
  }
  ~Stores() { std::filesystem::remove_all(folder_); }

  std::unique_ptr<TcpStore> client(const std::string& name, const std::string& run = "test") {
    return std::make_unique<TcpStore>(TcpStore::Options{
        .at = server_->endpoint(), .run = run, .name = name, .timeout = milliseconds(300)});
  }
  Store& operator[](std::size_t i) { return *stores_[i]; }
  TcpStore& tcp(std::size_t i) { return dynamic_cast<TcpStore&>(*stores_[i]); }
  TcpStoreServer& server() { return *server_; }
  void drop(std::size_t i) { stores_[i].reset(); }
  void drop_server() { server_.reset(); }

 private:
  std::string folder_;
  std::unique_ptr<TcpStoreServer> server_;
  std::vector<std::unique_ptr<Store>> stores_;
};

// Every byte, and more than a packet.
std::string all_bytes(std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  return bytes;
}

// A connection that speaks no protocol.
Socket raw_connection(const TcpStoreServer& server) {
  Connecting attempt = connect_to(server.endpoint(), milliseconds(1000));
  REQUIRE(attempt.socket);
  return std::move(attempt.socket);
}

bool is_closed_within(const Socket& socket, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  char byte = 0;
  while (Clock::now() < deadline) {
    const ssize_t count = recv(socket.fd(), &byte, 1, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

}  // namespace

TEST_CASE("stores keep the first value of a key, whatever its bytes", "[store]") {
  Stores stores(GENERATE("folder", "tcp"));
  const std::string key = "a/../b\n\0 x" + all_bytes(90), value = all_bytes(100001);
  CHECK_FALSE(stores[1].get(key));
  CHECK(stores[0].set(key, value));
  CHECK(stores[1].get(key) == value);
  CHECK_FALSE(stores[1].set(key, "another"));
  CHECK(stores[0].get(key) == value);
  CHECK(stores[1].set("", ""));
  CHECK(stores[0].get("") == "");
  CHECK_FALSE(stores[0].get("a"));
}

TEST_CASE("stores wait for keys, and name those that do not come", "[store]") {
  Stores stores(GENERATE("folder", "tcp"));
  const auto start = Clock::now();
  stores[1].set("here", "1");
  CHECK(stores[0].wait({"here", "there", "nowhere"}, milliseconds(60)) == Keys{"there", "nowhere"});
  CHECK(seconds_since(start) >= 0.06);
  CHECK(stores[0].wait({"there"}, milliseconds(0)) == Keys{"there"});
  CHECK(stores[0].wait({}, milliseconds(10000)).empty());
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(30));
    stores[1].set("there", "2");
    stores[1].set("nowhere", "3");
  });
  CHECK(stores[0].wait({"here", "there", "nowhere"}, milliseconds(10000)).empty());
  late.join();
  CHECK(seconds_since(start) < 5);
}

TEST_CASE("many ranks set and wait at the same time", "[store]") {
  constexpr int kRanks = 12;
  Stores stores(GENERATE("folder", "tcp"), kRanks);
  Keys keys;
  for (int rank = 0; rank < kRanks; ++rank) keys.push_back("rank " + std::to_string(rank));
  std::vector<std::thread> threads;
  std::vector<int> good(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Store& mine = stores[rank];
      mine.set(keys[rank], all_bytes(rank * 1000));
      if (!mine.wait(keys, milliseconds(20000)).empty()) return;
      for (std::size_t other = 0; other < kRanks; ++other)
        good[rank] += mine.get(keys[other]) == all_bytes(other * 1000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == std::vector<int>(kRanks, kRanks));
}

TEST_CASE("a folder that is not there, and a value that is not written yet", "[store]") {
  const std::string folder = "/nowhere/at/all";
  CHECK_THROWS_WITH(FolderStore(folder).set("k", "v"),
                    Contains("/nowhere/at/all/key-k cannot be written: No such file or directory"));
  CHECK_FALSE(FolderStore(folder).get("k"));
}

TEST_CASE("a client waits for a server that comes late", "[tcp]") {
  Endpoint at{.host = "127.0.0.1"};
  { at.port = TcpStoreServer({.at = at}).endpoint().port; }
  std::unique_ptr<TcpStoreServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(120));
    server = std::make_unique<TcpStoreServer>(TcpStoreServer::Options{.at = at, .run = "late"});
  });
  TcpStore client({.at = at, .run = "late", .name = "c", .timeout = milliseconds(20000)});
  late.join();
  CHECK(client.set("k", "v"));
  CHECK(client.local_address() == "127.0.0.1");
}

TEST_CASE("where nothing listens, the deadline names the address", "[tcp]") {
  Endpoint at{.host = "127.0.0.1"};
  { at.port = TcpStoreServer({.at = at}).endpoint().port; }
  const auto start = Clock::now();
  CHECK_THROWS_AS(TcpStore({.at = at, .name = "rank 3", .timeout = milliseconds(150)}),
                  TimeoutError);
  CHECK_THROWS_WITH(TcpStore({.at = at, .name = "rank 3", .timeout = milliseconds(150)}),
                    Contains("[rendezvous] there was no reply from rank 3 at " + at.str() +
                             " within 0.15 s (Connection refused)"));
  CHECK(seconds_since(start) < 5);
  CHECK_THROWS_WITH(TcpStore({.at = {.host = "no.such.host.invalid", .port = 1}, .name = "x"}),
                    Contains("no address is known for host \"no.such.host.invalid\""));
}

TEST_CASE("a server that cannot listen says why", "[tcp]") {
  const TcpStoreServer first({.at = {.host = "127.0.0.1"}});
  CHECK_THROWS_WITH(
      TcpStoreServer({.at = first.endpoint()}),
      Contains("cannot listen at " + first.endpoint().str() +
               ": Address already in use; another run may use it; choose another port"));
  CHECK_THROWS_WITH(TcpStoreServer({.at = {.host = "192.0.2.77", .port = 2000}}),
                    Contains("cannot listen at 192.0.2.77:2000: ") &&
                        Contains("it is no address of this host, where node 0 has to run"));
  CHECK_THROWS_WITH(TcpStoreServer({.at = {.host = "no.such.host.invalid", .port = 2000}}),
                    Contains("cannot listen at no.such.host.invalid:2000: no address is known"));
}

TEST_CASE("a server listens at its address only, and no longer than needed", "[tcp]") {
  Stores stores("tcp", 1);
  Endpoint at = stores.server().endpoint();
  CHECK_FALSE(connect_to({.host = "127.0.0.2", .port = at.port}, milliseconds(500)).socket);
  CHECK_THROWS_AS(stores.client("one too many"), TimeoutError);  // all have come
  const TcpStoreServer next({.at = at});                         // while the first one still serves
  CHECK(stores[0].set("k", "v"));
}

TEST_CASE("clients of another run, and doubles, are refused", "[tcp]") {
  TcpStoreServer server({.at = {.host = "127.0.0.1"}, .run = "2 nodes", .clients = 5});
  const auto join = [&](const std::string& run, const std::string& name) {
    return std::make_unique<TcpStore>(
        TcpStore::Options{.at = server.endpoint(), .run = run, .name = name});
  };
  const auto first = join("2 nodes", "node 1");
  const std::string at = server.endpoint().str();
  CHECK_THROWS_WITH(join("3 nodes", "node 1"),
                    Contains("node 1 was refused at " + at +
                             ": it belongs to a run of 3 nodes, but here is one of 2 nodes"));
  CHECK_THROWS_WITH(join("2 nodes", "node 1"),
                    Contains("node 1 was refused at " + at +
                             ": node 1 has come already, from 127.0.0.1; give each node a "
                             "--node-rank of its own"));
  CHECK(first->set("still", "here"));
}

TEST_CASE("who speaks another protocol is thrown out", "[tcp]") {
  TcpStoreServer server({.at = {.host = "127.0.0.1"}, .run = "r", .clients = 2});
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), all_bytes(3000),
                                  encode({"set", "k", "v"}), encode({}), encode({"hello", "x"})}) {
    const Socket stranger = raw_connection(server);
    REQUIRE(send(stranger.fd(), text.data(), text.size(), MSG_NOSIGNAL) > 0);
    CHECK(is_closed_within(stranger, milliseconds(5000)));
  }
  TcpStore client({.at = server.endpoint(), .run = "r", .name = "c"});
  CHECK_FALSE(client.get("k"));
}

TEST_CASE("strangers that say nothing do not keep others out", "[tcp]") {
  TcpStoreServer server({.at = {.host = "127.0.0.1"}, .run = "r", .clients = 2});
  std::vector<Socket> strangers;
  for (int i = 0; i < 70; ++i) strangers.push_back(raw_connection(server));
  CHECK(is_closed_within(strangers.back(), milliseconds(5000)));
  strangers.erase(strangers.begin(), strangers.begin() + 10);
  TcpStore client({.at = server.endpoint(), .run = "r", .name = "c"});
  CHECK(client.set("k", "v"));
}

TEST_CASE("what answers but is no store is named", "[tcp]") {
  const Socket listener = listen_at({.host = "127.0.0.1"});
  const Endpoint at{.host = "127.0.0.1", .port = listener.local_port()};
  const auto answered_with = [&](const std::string& text) {
    std::thread other([&] {
      int fd = -1;
      while ((fd = accept(listener.fd(), nullptr, nullptr)) < 0)
        std::this_thread::sleep_for(milliseconds(1));
      const Socket socket(fd);
      send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      is_closed_within(socket, milliseconds(5000));
    });
    std::string error;
    try {
      TcpStore({.at = at, .name = "c", .timeout = milliseconds(200)});
    } catch (const Error& caught) {
      error = caught.what();
    }
    other.join();
    return error;
  };
  CHECK_THAT(answered_with("SSH-2.0-OpenSSH_9.2p1\r\n"),
             Contains("the program that replies at " + at.str() + " is not the store of a run"));
  CHECK_THAT(answered_with(""),
             Contains("the program that listens at " + at.str() + " does not reply"));
}

TEST_CASE("a will is carried out when its client goes, unless taken back", "[tcp]") {
  Stores stores("tcp", 4);
  stores.tcp(0).leave_will("end of 0", "first");
  stores.tcp(0).leave_will("end of 0", "last");
  stores.tcp(1).leave_will("end of 1", "never");
  stores.tcp(1).leave_will("", "");
  CHECK(stores[3].wait({"end of 0"}, milliseconds(30)) == Keys{"end of 0"});
  stores.drop(0);
  stores.drop(1);
  CHECK(stores[2].wait({"end of 0"}, milliseconds(5000)).empty());
  CHECK(stores[2].get("end of 0") == "last");
  CHECK(stores[2].wait({"end of 1"}, milliseconds(50)) == Keys{"end of 1"});
  CHECK_FALSE(stores.server().wait_until_left(milliseconds(10)));
  stores.drop(2);
  stores.drop(3);
  CHECK(stores.server().wait_until_left(milliseconds(5000)));
}

TEST_CASE("a request ends when the server goes or its own process lets go", "[tcp]") {
  Stores stores("tcp", 2);
  const bool server_goes = GENERATE(true, false);
  const auto start = Clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(30));
    server_goes ? stores.drop_server() : stores.tcp(0).shut_down();
  });
  CHECK_THROWS_WITH(stores[0].wait({"k"}, std::chrono::hours(1)),
                    Contains("[rendezvous] the store at 127.0.0.1:") && Contains(" is gone: "));
  other.join();
  CHECK_THROWS_AS(stores[0].get("k"), Error);
  CHECK(seconds_since(start) < 5);
}

TEST_CASE("messages survive being cut, and no others do", "[message]") {
  const StoreMessage message = {"set", "", all_bytes(5000), std::string(1, '\0')};
  const std::string bytes = encode(message) + encode({"get", "k"});
  for (std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{4096}, bytes.size()}) {
    MessageReader reader;
    std::vector<StoreMessage> read;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      while (const auto next = reader.next()) read.push_back(*next);
    }
    CHECK(read == std::vector<StoreMessage>{message, {"get", "k"}});
  }
  MessageReader large, broken;
  large.add("\xFF\xFF\xFF\x7F");
  CHECK_THROWS_WITH(large.next(), Contains("2147483647 bytes are announced, at most 1048576"));
  broken.add(std::string("\5\0\0\0\7\0\0\0x", 9));
  CHECK_THROWS_WITH(broken.next(), Contains("a part of 7 bytes does not fit into the 5 left"));
  CHECK_THROWS_WITH(encode({std::string(kMaxMessageBytes, 'x')}), Contains("is too large"));
}

TEST_CASE("endpoints are read as they are written", "[endpoint]") {
  const auto read = [](const std::string& text) { return parse_endpoint("--at", text, 7).str(); };
  CHECK(read("node0") == "node0:7");
  CHECK(read("node0:29400") == "node0:29400");
  CHECK(read("[::1]:29400") == "[::1]:29400");
  CHECK(read("[::1]") == "[::1]:7");
  CHECK(read("fe80::2") == "[fe80::2]:7");
  for (const char* text : {"node0:", "node0:x", "node0:0", "node0:65536", "node0:1x", "[::1]x"})
    CHECK_THROWS_WITH(read(text), Contains("--at takes host:port with a port from 1 to 65535"));
  for (const char* text : {"", ":7", "[]:7"})
    CHECK_THROWS_WITH(read(text), Contains("--at takes host or host:port, got \""));
}

TEST_CASE("addresses of this host", "[endpoint]") {
  CHECK(own_address("lo") == "127.0.0.1");
  CHECK(own_address("127.0.0.1") == "127.0.0.1");
  CHECK(is_loopback(own_address("localhost")));
  CHECK_FALSE(is_loopback("10.0.0.1"));
  CHECK_THROWS_WITH(own_address("192.0.2.77"),
                    Contains("[launch] --local-addr 192.0.2.77 is no address of this host"));
  CHECK_THROWS_WITH(own_address("no.such.host.invalid"),
                    Contains("--local-addr takes an interface"));
}

}  // namespace tessera::distributed
