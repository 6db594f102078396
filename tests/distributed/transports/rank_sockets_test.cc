// The connections between ranks, before Gloo has them: which processes may take part, and what
// strangers can do at a rank's port while the ranks assemble.
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/distributed/transports/rank_sockets.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/distributed/store/attacks.h"
#include "tessera/tests/distributed/store/wrapped_store.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

const Credentials kOurs{.secret = "a secret of the run", .job = "job 7"};

std::string announced_key(int rank) { return "joined-" + std::to_string(rank); }

std::string ranks_payload(std::uint64_t from, std::uint64_t to) {
  std::string payload;
  append_number(payload, from, 4);
  append_number(payload, to, 4);
  return payload;
}

// Ranks as threads that find each other in memory. Errors by rank; empty for none.
class Ranks {
 public:
  explicit Ranks(int size) : errors(static_cast<std::size_t>(size)), size_(size) {}
  ~Ranks() { join(); }

  template <class Body>
  void start(int rank, const Body& body) {
    threads_.emplace_back([this, rank, body] {
      const RankScope scope(std::make_shared<RankContext>(rank, size_, 1));
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  RankSocketsOptions options(int rank) {
    return {.rank = rank,
            .size = size_,
            .store = store,
            .address = "127.0.0.1",
            .credentials = kOurs,
            .log = sink(),
            .timeout = milliseconds(20000)};
  }
  LineSink sink() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_ += line + "\n";
    };
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  // Where a rank that has been started listens.
  Endpoint endpoint_of(int rank) {
    REQUIRE(store->wait({announced_key(rank)}, milliseconds(5000)).empty());
    return parse_endpoint("the store", store->get(announced_key(rank)).value(), 0);
  }

  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::vector<std::string> errors;

 private:
  int size_;
  std::mutex mutex_;
  std::string log_;
  std::vector<std::thread> threads_;
};

// The bits of a sum over ranks whose values differ in size.
std::vector<float> sum_of(ProcessGroup& group) {
  const Tensor x = Tensor::from_vector<float>(
      {0.1F + static_cast<float>(group.rank()), 1e7F / static_cast<float>(group.rank() + 3)}, {2});
  all_reduce(group, std::vector{x});
  return x.to_vector<float>();
}

// The store of a rank whose address has been left there already. The highest rank connects to all
// others, so none of them uses it.
std::shared_ptr<Store> store_of_announced(std::shared_ptr<Store> store, const std::string& key) {
  return std::make_shared<WrappedStore>(
      std::move(store), [key](Store& all, const std::string& each, const std::string& value) {
        return each == key || all.set(each, value);
      });
}

// The store of a rank that fails when it leaves a value at this key.
std::shared_ptr<Store> failing_store(std::shared_ptr<Store> store, const std::string& key) {
  return std::make_shared<WrappedStore>(
      std::move(store), [key](Store& all, const std::string& each, const std::string& value) {
        if (each == key) throw Error("no room for " + key);
        return all.set(each, value);
      });
}

void train(Ranks& ranks, int rank, int size, std::vector<float>& result) {
  std::shared_ptr<Store> store = ranks.store;
  if (rank == size - 1) store = store_of_announced(store, announced_key(rank));
  const auto group = make_gloo_group("g", {.rank = rank,
                                           .size = size,
                                           .store = store,
                                           .credentials = kOurs,
                                           .log = ranks.sink(),
                                           .timeout = milliseconds(20000)});
  result = sum_of(*group);
}

// All ranks of a run, while `meanwhile` happens: the last one is held back until it has.
template <class Meanwhile>
std::vector<std::vector<float>> run(Ranks& ranks, int size, const Meanwhile& meanwhile) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
  const auto start = [&](int rank) {
    ranks.start(
        rank, [&](int mine) { train(ranks, mine, size, results[static_cast<std::size_t>(mine)]); });
  };
  ranks.store->set(announced_key(size - 1), "127.0.0.1:1");
  for (int rank = 0; rank < size - 1; ++rank) start(rank);
  meanwhile();
  start(size - 1);
  ranks.join();
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.errors[static_cast<std::size_t>(rank)] == "");
  return results;
}

}  // namespace

TEST_CASE("every rank is connected with every other", "[sockets]") {
  const int size = GENERATE(1, 2, 3, 5);
  Ranks ranks(size);
  std::vector<std::string> heard(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ranks.start(rank, [&](int mine) {
      const std::vector<Socket> sockets = connect_ranks(ranks.options(mine), "g");
      for (int peer = 0; peer < size; ++peer) {
        const Socket& socket = sockets[static_cast<std::size_t>(peer)];
        if (peer != mine) send_raw(socket, std::string(1, static_cast<char>('a' + mine)));
      }
      for (int peer = 0; peer < size; ++peer) {
        const Socket& socket = sockets[static_cast<std::size_t>(peer)];
        char byte = '-';
        pollfd wanted = {.fd = socket.fd(), .events = POLLIN, .revents = 0};
        if (peer != mine && poll(&wanted, 1, 5000) == 1) ::recv(socket.fd(), &byte, 1, 0);
        heard[static_cast<std::size_t>(mine)] += byte;
      }
    });
  }
  ranks.join();
  for (int rank = 0; rank < size; ++rank) {
    CHECK(ranks.errors[static_cast<std::size_t>(rank)].empty());
    std::string expected = std::string("abcdefgh").substr(0, static_cast<std::size_t>(size));
    expected[static_cast<std::size_t>(rank)] = '-';
    CHECK(heard[static_cast<std::size_t>(rank)] == expected);
  }
  CHECK(ranks.log().empty());
}

TEST_CASE("an attack on a rank's port does not change what the ranks compute", "[attacks]") {
  constexpr int kSize = 3;
  const NamedAttack& attack = all_attacks()[GENERATE(range(std::size_t{0}, std::size_t{8}))];
  INFO(attack.name);
  Ranks ranks(kSize), others(kSize);
  const auto undisturbed = run(others, kSize, [] {});
  std::vector<Socket> connections;
  const auto results = run(ranks, kSize, [&] {
    connections = attack.start({.at = ranks.endpoint_of(0),
                                .credentials = kOurs,
                                .purpose = kRanksPurpose,
                                .duplicate = ranks_payload(0, 0),
                                .out_of_range = ranks_payload(99, 0)});
  });
  CHECK(results == undisturbed);
  for (const Socket& connection : connections) CHECK(closed_within(connection, milliseconds(1000)));
  const bool duplicate = attack.name == std::string("duplicate rank");
  CHECK_THAT(ranks.log(), Contains("rank 0 dropped a connection from 127.0.0.1: ") &&
                              Contains(duplicate ? "it says that it is rank 0" : attack.logged));
}

TEST_CASE("a rank that left before another one is ready has left it in order", "[sockets]") {
  for (int round = 0; round < 5; ++round) {
    Ranks ranks(3);
    for (const int rank : {1, 2}) {
      ranks.store->set(announced_key(rank), "127.0.0.1:1");
      ranks.store->set("host-" + std::to_string(rank), "");  // they share no memory
    }
    ranks.start(0, [&](int) {
      make_gloo_group("g", {.rank = 0, .size = 3, .store = ranks.store, .credentials = kOurs});
    });
    const Endpoint at = ranks.endpoint_of(0);
    for (const std::uint64_t rank : {1U, 2U}) {
      RawClient client(at, kOurs, kRanksPurpose);
      REQUIRE(client.shake_hands());
      client.send(FrameType::kJoin, ranks_payload(rank, 0));
      REQUIRE(client.receive());
    }
    ranks.join();
    REQUIRE(ranks.errors[0] == "");
  }
}

TEST_CASE("a rank that fails once it is connected is not waited for until the timeout",
          "[sockets]") {
  const std::string key = GENERATE("host-1", "memory-1", "unmapped-1");
  CAPTURE(key);
  Ranks ranks(3);
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    ranks.start(rank, [&](int mine) {
      std::shared_ptr<Store> store = ranks.store;
      if (mine == 1) store = failing_store(store, key);
      make_gloo_group("g", {.rank = mine,
                            .size = 3,
                            .store = store,
                            .credentials = kOurs,
                            .timeout = milliseconds(60000)});
    });
  }
  ranks.join();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  CHECK(ranks.errors[1] == "no room for " + key);
  // The second one to notice may name the first one, which has gone because of rank 1.
  const auto names = [&ranks](std::size_t other, int rank) {
    return ranks.errors[other].find("group \"g\": rank " + std::to_string(rank) +
                                    " is gone (its connection closed)") != std::string::npos;
  };
  CHECK((names(0, 1) || names(0, 2)));
  CHECK((names(2, 1) || names(2, 0)));
  CHECK((names(0, 1) || names(2, 1)));
}

TEST_CASE("a rank that others do not expect is refused", "[sockets]") {
  Ranks ranks(3);
  ranks.start(0, [&](int mine) { connect_ranks(ranks.options(mine), "g"); });
  // The others have left their addresses, and connect by hand.
  for (const int rank : {1, 2}) ranks.store->set(announced_key(rank), "127.0.0.1:1");
  const auto join = [&](std::uint64_t from, std::uint64_t to) {
    RawClient client(ranks.endpoint_of(0), kOurs, kRanksPurpose);
    REQUIRE(client.shake_hands());
    client.send(FrameType::kJoin, ranks_payload(from, to));
    const std::optional<Frame> reply = client.receive();
    REQUIRE(reply);
    return reply->type == FrameType::kOk ? "ok" : reply->payload;
  };
  CHECK(join(2, 1) == "it looks for rank 1, this is rank 0");
  const std::string unexpected = ", of which rank 0 of 3 expects no connection";
  CHECK(join(0, 0) == "it says that it is rank 0" + unexpected);
  CHECK(join(3, 0) == "it says that it is rank 3" + unexpected);
  CHECK(join(0xFFFFFFFF, 0) == "it says that it is rank 4294967295" + unexpected);
  CHECK(join(1, 0) == "ok");
  CHECK(join(1, 0) == "rank 1 is connected already");
  RawClient client(ranks.endpoint_of(0), kOurs, kRanksPurpose);
  REQUIRE(client.shake_hands());
  client.send(FrameType::kJoin, "short");
  CHECK(closed_within(client.socket(), milliseconds(5000)));
  CHECK(join(2, 0) == "ok");
  ranks.join();
  CHECK(ranks.errors[0].empty());
  CHECK_THAT(ranks.log(), Contains("rank 0 dropped a connection from 127.0.0.1: it does not "
                                   "introduce itself"));
}

TEST_CASE("ranks with other credentials do not connect, and say so", "[sockets]") {
  Ranks ranks(2);
  for (const int rank : {0, 1}) {
    ranks.start(rank, [&](int mine) {
      RankSocketsOptions options = ranks.options(mine);
      options.timeout = milliseconds(1000);
      if (mine == 1) options.credentials.job = "job 8";
      connect_ranks(options, "g");
    });
  }
  ranks.join();
  CHECK_THAT(ranks.errors[0], Contains("group \"g\": rank 1 did not come within 1 s"));
  CHECK_THAT(ranks.errors[1], Contains("group \"g\": rank 0 at 127.0.0.1:") &&
                                  Contains(": the secret or the job id is another there"));
  CHECK_THAT(ranks.log(), Contains("rank 0 dropped a connection from 127.0.0.1: its secret or its "
                                   "job id is another"));
}

TEST_CASE("a rank listens beyond its host only with a secret", "[sockets]") {
  Ranks ranks(2);
  RankSocketsOptions options = ranks.options(0);
  options.address = "192.0.2.7";
  options.credentials = {};
  CHECK_THROWS_WITH(connect_ranks(options, "g"), Contains("other hosts can reach 192.0.2.7:0"));
}

TEST_CASE("a connection to a rank that does not introduce itself in time is dropped", "[sockets]") {
  Ranks ranks(2);
  ranks.start(0, [&](int mine) {
    RankSocketsOptions options = ranks.options(mine);
    options.introduction = milliseconds(50);
    connect_ranks(options, "g");
  });
  const Endpoint at = ranks.endpoint_of(0);
  ranks.store->set(announced_key(1), "127.0.0.1:1");
  const Socket silent = raw_connection(at);
  CHECK(closed_within(silent, milliseconds(5000)));
  RawClient client(at, kOurs, kRanksPurpose);
  REQUIRE(client.shake_hands());
  client.send(FrameType::kJoin, ranks_payload(1, 0));
  REQUIRE(client.receive());
  ranks.join();
  CHECK(ranks.errors[0].empty());
  CHECK_THAT(ranks.log(), Contains("it has not introduced itself in time"));
}

}  // namespace tessera::distributed
