// What of the NCCL transport can be tested without NCCL and without a GPU: what its statuses mean,
// which way members take, and what ranks tell each other through the store.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>

#include "tessera/distributed/nccl/copy_segments.h"
#include "tessera/distributed/nccl/nccl_peers.h"
#include "tessera/distributed/nccl/nccl_routes.h"
#include "tessera/distributed/store/store.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

// ---- statuses -----------------------------------------------------------------------------------

TEST_CASE("nccl statuses: which mean what") {
  const NcclOutcome expected[] = {NcclOutcome::kDone,        NcclOutcome::kDeviceError,
                                  NcclOutcome::kCollective,  NcclOutcome::kDeviceError,
                                  NcclOutcome::kDeviceError, NcclOutcome::kDeviceError,
                                  NcclOutcome::kPeer,        NcclOutcome::kPending};
  for (int code = 0; code < 8; ++code) CHECK(nccl_meaning(code).outcome == expected[code]);
  for (int code : {-1, 8, 100}) {
    CHECK(nccl_meaning(code).outcome == NcclOutcome::kDeviceError);
    CHECK(std::string(nccl_meaning(code).name) == "an unknown status");
  }
}

TEST_CASE("nccl statuses: every failure has a name of its own and advice") {
  std::set<std::string> names;
  for (int code = 0; code < 9; ++code) {
    const NcclMeaning meaning = nccl_meaning(code);
    CHECK(names.insert(meaning.name).second);
    const bool fails =
        meaning.outcome != NcclOutcome::kDone && meaning.outcome != NcclOutcome::kPending;
    CHECK(std::string(meaning.advice).empty() == !fails);
  }
}

TEST_CASE("nccl statuses: their text") {
  CHECK(nccl_message(6, "ncclAllReduce", "remote process exited", "") ==
        "NCCL reports ncclRemoteError (code 6) in ncclAllReduce: remote process exited; another "
        "rank has failed or is gone: its own message says why");
  CHECK(nccl_message(3, "ncclSend", "internal error", "socket closed") ==
        "NCCL reports ncclInternalError (code 3) in ncclSend: internal error (socket closed); "
        "NCCL_DEBUG=WARN in the environment makes NCCL say more");
}

// ---- ways ---------------------------------------------------------------------------------------

TEST_CASE("nccl reductions: by NCCL where it means the same") {
  using R = NcclReduction;
  for (DType dtype : kAllDTypes) {
    const bool is_bool = dtype == DType::kBool;
    const bool whole = dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8;
    CHECK(nccl_reduction(ReduceOp::kSum, dtype, 3) == (is_bool ? R::kMax : R::kSum));
    CHECK(nccl_reduction(ReduceOp::kProduct, dtype, 3) == (is_bool ? R::kMin : R::kProduct));
    CHECK(nccl_reduction(ReduceOp::kMin, dtype, 3) ==
          (is_bool || whole ? R::kMin : R::kInRankOrder));
    CHECK(nccl_reduction(ReduceOp::kMax, dtype, 3) ==
          (is_bool || whole ? R::kMax : R::kInRankOrder));
  }
}

TEST_CASE("nccl reductions: averages and factors, where the dtype holds the number") {
  using R = NcclReduction;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    for (int ranks : {1, 2, 3, 6})
      CHECK(nccl_reduction(ReduceOp::kAverage, dtype, ranks) == R::kAverage);
    CHECK(nccl_reduction(ReduceOp::premul_sum(0.3), dtype, 3) == R::kPremulSum);
  }
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int ranks : {1, 2, 4, 1024})
      CHECK(nccl_reduction(ReduceOp::kAverage, dtype, ranks) == R::kAverage);
    for (int ranks : {3, 5, 6, 7})
      CHECK(nccl_reduction(ReduceOp::kAverage, dtype, ranks) == R::kInRankOrder);
    CHECK(nccl_reduction(ReduceOp::premul_sum(0.125), dtype, 3) == R::kPremulSum);
    CHECK(nccl_reduction(ReduceOp::premul_sum(-1.5), dtype, 3) == R::kPremulSum);
    CHECK(nccl_reduction(ReduceOp::premul_sum(0.3), dtype, 3) == R::kInRankOrder);
  }
  CHECK(nccl_reduction(ReduceOp::premul_sum(1e6), DType::kF16, 3) == R::kInRankOrder);
}

using Indices = std::vector<std::size_t>;

TEST_CASE("nccl routes: small members together, large ones by themselves") {
  const NcclRouteRequest request{.kind = CollectiveKind::kAllGather, .ranks = 4, .element_size = 4};
  const auto limit = static_cast<std::int64_t>(kNcclPackedPart / 4);
  const std::vector<std::int64_t> mixed = {10, limit, 0, limit - 1, 3 * limit};
  const NcclRoutes routes = nccl_routes(request, mixed);
  CHECK(routes.packed == Indices{0, 3});
  CHECK(routes.direct == Indices{1, 4});
  CHECK(routes.packed_elements == limit + 9);
}

TEST_CASE("nccl routes: one small member is not copied, and empty ones take no way") {
  const NcclRouteRequest request{.kind = CollectiveKind::kAllReduce, .element_size = 2};
  for (const std::vector<std::int64_t>& list :
       {std::vector<std::int64_t>{7}, {0, 7}, {7, 0, 1 << 20}}) {
    const NcclRoutes routes = nccl_routes(request, list);
    CHECK(routes.packed.empty());
    CHECK(routes.packed_elements == 0);
    CHECK(routes.direct.size() == (list.size() == 3 ? 2u : 1u));
  }
  const NcclRoutes none = nccl_routes(request, std::vector<std::int64_t>{0, 0});
  CHECK((none.packed.empty() && none.direct.empty()));
}

TEST_CASE("nccl routes: registered slots take what fits, whatever its size") {
  NcclRouteRequest request{
      .kind = CollectiveKind::kAllReduce, .ranks = 2, .element_size = 4, .slot_bytes = 4000};
  NcclRoutes routes = nccl_routes(request, std::vector<std::int64_t>{600, 500, 400});
  CHECK(routes.packed == Indices{0, 2});
  CHECK(routes.direct == Indices{1});
  CHECK(routes.packed_elements == 1000);
  routes = nccl_routes(request, std::vector<std::int64_t>{1000});
  CHECK(routes.packed == Indices{0});
  // A gather's slot holds this rank's part and all parts.
  request.kind = CollectiveKind::kAllGather;
  CHECK(nccl_routes(request, std::vector<std::int64_t>{333}).packed == Indices{});
  CHECK(nccl_routes(request, std::vector<std::int64_t>{332}).packed == Indices{0});
}

TEST_CASE("nccl buffers: what packed members need") {
  NcclRouteRequest request{.kind = CollectiveKind::kReduce, .ranks = 3, .element_size = 2};
  CHECK(nccl_packed_buffer(request, 11).bytes == 22);
  CHECK(nccl_packed_buffer(request, 11).whole_at == 0);
  request.kind = CollectiveKind::kReduceScatter;
  const NcclPackedBuffer buffer = nccl_packed_buffer(request, 11);
  CHECK(buffer.part_at == 0);
  CHECK(buffer.whole_at == 32);
  CHECK(buffer.bytes == 32 + 3 * 22);
}

TEST_CASE("copies on a GPU: the widest unit that all runs are made of") {
  alignas(16) static std::byte memory[64];
  const auto unit = [](std::size_t from, std::size_t to, std::int64_t bytes) {
    return copy_unit({.from = memory + from, .to = memory + to, .row_bytes = bytes});
  };
  CHECK(unit(0, 16, 32) == 16);
  CHECK(unit(0, 16, 24) == 8);
  CHECK(unit(8, 16, 32) == 8);
  CHECK(unit(4, 16, 32) == 4);
  CHECK(unit(2, 16, 32) == 2);
  CHECK(unit(0, 16, 31) == 1);
  const CopySegment rows{.from = memory,
                         .to = memory + 16,
                         .row_bytes = 16,
                         .rows = 2,
                         .from_pitch = 16,
                         .to_pitch = 20};
  CHECK(copy_unit(rows) == 4);
}

// ---- what ranks tell each other -----------------------------------------------------------------

struct World3 {
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  NcclPeers ranks[3] = {{store, 0}, {store, 1}, {store, 2}};
  NcclRankGroup rank_group(int place) const {
    return {.key = "t", .ranks = {0, 1, 2}, .place = place};
  }
};

TEST_CASE("a memory store keeps the first value, and waits") {
  MemoryStore store;
  CHECK(store.set("a", "1"));
  CHECK_FALSE(store.set("a", "2"));
  CHECK(store.get("a") == "1");
  CHECK_FALSE(store.get("b"));
  CHECK(store.wait({"a", "b"}, milliseconds(1)) == std::vector<std::string>{"b"});
  std::thread later([&store] { store.set("b", ""); });
  CHECK(store.wait({"a", "b"}, milliseconds(60000)).empty());
  later.join();
}

TEST_CASE("nccl peers: a name to connect under, and who has not come") {
  World3 world;
  CHECK_FALSE(world.ranks[1].take_id(world.rank_group(1), milliseconds(1)));
  const std::string id("\0bytes\xff", 7);
  world.ranks[0].give_id(world.rank_group(0), id);
  CHECK(world.ranks[1].take_id(world.rank_group(1), milliseconds(1)) == id);
  world.ranks[0].come(world.rank_group(0));
  world.ranks[2].come(world.rank_group(2));
  CHECK(world.ranks[0].absent(world.rank_group(0)) == std::vector<int>{1});
}

TEST_CASE("nccl peers: the first failure is what all hear of") {
  World3 world;
  CHECK_FALSE(world.ranks[0].failure());
  world.ranks[2].tell_failure("rank 2 failed: x");
  world.ranks[1].tell_failure("rank 1 failed: y");
  CHECK(world.ranks[0].failure() == "rank 2 failed: x");
}

TEST_CASE("nccl peers: who has not issued a collective") {
  World3 world;
  world.ranks[0].note_issued(world.rank_group(0), 5);
  world.ranks[1].note_issued(world.rank_group(1), 4);
  world.ranks[2].note_issued(world.rank_group(2), 6);
  world.ranks[1].answer();  // nothing was asked yet
  std::thread watch([&world] {
    for (int i = 0; i < 100; ++i) {
      world.ranks[2].answer();
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  CHECK(world.ranks[0].not_arrived(world.rank_group(0), 5) == std::vector<int>{1});
  watch.join();
}

TEST_CASE("nccl peers: each rank that asks gets answers to its own question") {
  World3 world;
  for (int rank = 0; rank < 3; ++rank) world.ranks[rank].note_issued(world.rank_group(rank), 5);
  const auto others_answer = [&world] {
    std::vector<std::thread> all;
    for (int rank = 1; rank < 3; ++rank) {
      all.emplace_back([&world, rank] {
        for (int i = 0; i < 100; ++i) {
          world.ranks[rank].answer();
          std::this_thread::sleep_for(milliseconds(2));
        }
      });
    }
    return all;
  };
  for (const std::uint64_t sequence : {5, 6}) {
    std::vector<std::thread> watches = others_answer();
    const std::vector<int> missing = world.ranks[0].not_arrived(world.rank_group(0), sequence);
    for (std::thread& watch : watches) watch.join();
    CHECK(missing == (sequence == 5 ? std::vector<int>{} : std::vector<int>{0, 1, 2}));
  }
  world.ranks[0].note_issued(world.rank_group(0), 6);
  std::thread watch([&world] {
    for (int i = 0; i < 100; ++i) {
      world.ranks[0].answer();
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  CHECK(world.ranks[2].not_arrived(world.rank_group(2), 6) == std::vector<int>{1, 2});
  watch.join();
}

// Ranks that watch ask at one deadline, and do not reply to other questions meanwhile.
TEST_CASE("nccl peers: ranks that ask at once answer each other") {
  for (const bool is_one_communicator : {true, false}) {
    CAPTURE(is_one_communicator);
    World3 world;
    std::vector<int> missing[2];
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      world.ranks[rank].note_issued({.key = "t"}, 5);
      world.ranks[rank].note_issued({.key = "u"}, 5);
    }
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        const NcclRankGroup rank_group{
            .key = is_one_communicator || rank == 0 ? "t" : "u", .ranks = {0, 1, 2}, .place = rank};
        missing[rank] = world.ranks[rank].not_arrived(rank_group, 5);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const std::vector<int>& each : missing) CHECK(each == std::vector<int>{2});
  }
}

TEST_CASE("nccl peers: who asks hears no more when somebody gives the run up") {
  World3 world;
  world.ranks[1].tell_failure("rank 1 failed: x");
  const auto start = std::chrono::steady_clock::now();
  CHECK(world.ranks[0].not_arrived(world.rank_group(0), 5) == std::vector<int>{0, 1, 2});
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(600));
}

TEST_CASE("nccl peers: a rank that has left before a collective, or after it") {
  World3 world;
  world.ranks[1].note_issued(world.rank_group(1), 5);
  CHECK_FALSE(world.ranks[0].left_before(world.rank_group(0), 5));
  world.ranks[1].leave(world.rank_group(1));
  CHECK_FALSE(world.ranks[0].left_before(world.rank_group(0), 5));
  CHECK(world.ranks[0].left_before(world.rank_group(0), 6) == 1);
  world.ranks[2].leave(world.rank_group(2));  // it never issued anything
  CHECK(world.ranks[0].left_before(world.rank_group(0), 1) == 2);
}

struct BrokenStore final : Store {
  bool set(const std::string&, const std::string&) override { throw Error("gone"); }
  std::optional<std::string> get(const std::string&) override { throw Error("gone"); }
  std::vector<std::string> wait(const std::vector<std::string>&, milliseconds) override {
    throw Error("gone");
  }
};

TEST_CASE("nccl peers: a store that is gone is no news, but nobody connects by it") {
  NcclPeers peers(std::make_shared<BrokenStore>(), 0);
  const NcclRankGroup rank_group{.key = "t", .ranks = {0, 1}, .place = 0};
  peers.tell_failure("x");
  peers.answer();
  peers.leave(rank_group);
  CHECK_FALSE(peers.failure());
  CHECK_FALSE(peers.left_before(rank_group, 1));
  CHECK(peers.not_arrived(rank_group, 1).empty());
  CHECK_THROWS_AS(peers.give_id(rank_group, "id"), Error);
}

}  // namespace
}  // namespace tessera::distributed
