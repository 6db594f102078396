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
#include "tessera/tests/distributed/store/attacks.h"
#include "tessera/tests/support/temporary_folder.h"

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
    if (kind == "tcp")
      server_ = std::make_unique<TcpStoreServer>(TcpStoreServer::Options{
          .at = {.host = "127.0.0.1"}, .run = "test", .expected = names(count)});
    for (int i = 0; i < count; ++i) {
      if (kind == "folder") stores_.push_back(std::make_shared<FolderStore>(folder_.path()));
      if (kind == "memory") stores_.push_back(memory_);
      if (kind == "tcp") stores_.push_back(client(names(count)[static_cast<std::size_t>(i)]));
    }
  }
  static Keys names(int count) {
    Keys names;
    for (int i = 0; i < count; ++i) names.push_back("client " + std::to_string(i));
    return names;
  }

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
  testing::TemporaryFolder folder_;
  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<MemoryStore> memory_ = std::make_shared<MemoryStore>();
  std::vector<std::shared_ptr<Store>> stores_;
};

// Every byte, and more than a packet.
std::string all_bytes(std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  return bytes;
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
    server = std::make_unique<TcpStoreServer>(
        TcpStoreServer::Options{.at = at, .run = "late", .expected = {"c"}});
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
  const Credentials ours{.secret = "a secret of the run"};
  CHECK_THROWS_WITH(
      TcpStoreServer({.at = first.endpoint()}),
      Contains("cannot listen at " + first.endpoint().str() +
               ": Address already in use; another run may use it; choose another port"));
  CHECK_THROWS_WITH(
      TcpStoreServer({.at = {.host = "192.0.2.77", .port = 2000}, .credentials = ours}),
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
  TcpStoreServer server(
      {.at = {.host = "127.0.0.1"}, .run = "2 nodes", .expected = {"node 0", "node 1", "rank 0"}});
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
  CHECK_THROWS_WITH(
      join("2 nodes", "rank 1"),
      Contains("rank 1 was refused at " + at + ": rank 1 is not one of this run's processes"));
  CHECK(first->set("still", "here"));
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
      closed_within(socket, milliseconds(5000));
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
             Contains("the program that replies at " + at.str() +
                      " is not the store of this run: it speaks another protocol"));
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

TEST_CASE("parts are read as they were written, and no other bytes are parts", "[message]") {
  const std::vector<std::string> parts = {"set", "", all_bytes(5000), std::string(1, '\0')};
  CHECK(decode_parts(encode_parts(parts)) == parts);
  CHECK(decode_parts("") == std::vector<std::string>{});
  const std::string one = encode_parts({"abc"});
  for (std::size_t size = 1; size < one.size(); ++size)
    CHECK_FALSE(decode_parts(std::string_view(one).substr(0, size)));
  CHECK_FALSE(decode_parts(std::string_view("\xFF\xFF\xFF\xFFx", 5)));
}

TEST_CASE("a store takes keys and values up to a size", "[store]") {
  Stores stores(GENERATE("memory", "folder", "tcp"));
  const std::string key(60, 'k'), value(kMaxValueBytes, 'v');
  CHECK(stores[0].set(key, value));
  CHECK(stores[1].get(key) == value);
  CHECK_THROWS_WITH(stores[0].set("a key", value + "v"),
                    Contains("[rendezvous] the value of \"a key\" has 262145 bytes, which is too "
                             "large for a store: it takes 262144"));
  CHECK_THROWS_WITH(
      stores[0].set(std::string(257, 'k'), ""),
      Contains("a key of 257 bytes is too large for a store, which takes 256: \"kkk"));
  CHECK(stores[1].set("a key", "still works"));
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
  CHECK(leads_to_loopback({.host = "localhost"}));
  CHECK(leads_to_loopback({.host = "::1"}));
  CHECK_FALSE(leads_to_loopback({.host = "0.0.0.0"}));
  CHECK_FALSE(leads_to_loopback({.host = "192.0.2.77"}));
  CHECK_FALSE(is_loopback("10.0.0.1"));
  CHECK_THROWS_WITH(own_address("192.0.2.77"),
                    Contains("[launch] --local-addr 192.0.2.77 is no address of this host"));
  CHECK_THROWS_WITH(own_address("no.such.host.invalid"),
                    Contains("--local-addr takes an interface"));
}

}  // namespace tessera::distributed
