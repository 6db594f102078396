// How local collectives order streams that run behind their hosts, as those of GPUs do. A mover
// over queued CPU streams replaces a GPU's: everything is issued, and runs later. Every rank fills
// its inputs on its stream before a collective and overwrites all memory after it; one rank's
// stream is late. If a mark were missing, a rank would read or overwrite too early.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tessera/distributed/transports/local_barrier.h"
#include "tessera/distributed/transports/local_mover.h"
#include "tessera/distributed/transports/reduce_in_order.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

class StreamMover final : public LocalMover {
 public:
  explicit StreamMover(const DeviceStream& stream) : stream_(stream) {}
  LocalMark mark() override { return stream_.record(); }
  void wait(const LocalMark& mark) override {
    if (mark) stream_.wait(*mark);
  }
  void check_reach(const LocalCalls&, int) const override {}
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0 || to == from) return;
    stream_.enqueue("copy", [=] { std::memcpy(to, from, bytes); });
  }
  void clear(std::byte* to, std::size_t bytes) override {
    stream_.enqueue("clear", [=] { std::memset(to, 0, bytes); });
  }
  void reduce(const ResolvedCollective& call, std::span<const void* const> sources, void* out,
              std::int64_t count) override {
    stream_.enqueue("reduce", [=, dtype = call.dtype, op = call.reduce,
                               all = std::vector<const void*>(sources.begin(), sources.end())] {
      reduce_in_order(dtype, op, all, out, count);
    });
  }

 private:
  const DeviceStream stream_;
};

constexpr std::int64_t kPart = 501;

// The memory of one rank: room for `size` parts to read and as many to write.
struct Memory {
  std::vector<float> in;
  std::vector<float> out;
};

bool is_in_place(const ResolvedCollective& call) { return distributed::is_in_place(call.kind); }

ResolvedCollective call_of(CollectiveKind kind, int rank, int size, Memory& memory) {
  ResolvedCollective call{.kind = kind, .root = size - 1};
  call.site = {.rank = rank, .group = "g", .op = collective_name(kind), .sequence = 1, .label = ""};
  auto* in = reinterpret_cast<std::byte*>(memory.in.data());
  auto* out = reinterpret_cast<std::byte*>(memory.out.data());
  const std::int64_t whole = kPart * size;
  const bool grows = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather;
  const bool shrinks = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter;
  ResolvedMember member{.input = in, .output = out, .count_in = whole, .count_out = whole};
  if (grows) member.count_in = kPart;
  if (shrinks) member.count_out = kPart;
  if (is_in_place(call)) member.output = in;
  member.row_elements = kPart;
  call.members = {member};
  call.rows_sent = call.rows_received =
      std::vector<std::int64_t>(static_cast<std::size_t>(size), 1);
  return call;
}

// To the next rank and from the one before.
ResolvedCollective ring_of(int rank, int size, Memory& memory) {
  ResolvedCollective call{.kind = CollectiveKind::kExchange};
  call.site = {.rank = rank, .group = "g", .op = "exchange", .sequence = 0, .label = ""};
  const auto message = [](int peer, float* data) {
    return ResolvedMessage{
        .peer = peer, .data = reinterpret_cast<std::byte*>(data), .count = kPart};
  };
  call.sends = {message((rank + 1) % size, memory.in.data())};
  call.receives = {message((rank + size - 1) % size, memory.out.data())};
  return call;
}

void fill(Memory& memory, int rank) {
  for (std::size_t i = 0; i < memory.in.size(); ++i) {
    memory.in[i] = 0.1f * static_cast<float>(i % 97) + 1.7f * static_cast<float>(rank + 1);
    memory.out[i] = -1;
  }
}

// What one rank's memory holds after the collective.
Memory run_rank(LocalBarriers& barriers, CollectiveKind kind, int rank, int size, bool late) {
  const auto room = static_cast<std::size_t>(kPart * size);
  Memory memory{std::vector<float>(room, -9), std::vector<float>(room, -9)}, result;
  const ResolvedCollective call = kind == CollectiveKind::kExchange
                                      ? ring_of(rank, size, memory)
                                      : call_of(kind, rank, size, memory);
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "rank");
  StreamMover mover(stream);
  if (late) stream_sleep(stream, 15);
  stream.enqueue("fill", [&] { fill(memory, rank); });
  barriers.perform(call, mover);
  stream.enqueue("keep", [&] { result = memory; });
  stream.enqueue("scribble", [&] {
    std::fill(memory.in.begin(), memory.in.end(), -7.0f);
    std::fill(memory.out.begin(), memory.out.end(), -7.0f);
  });
  stream.synchronize();
  return result;
}

// The same, at once.
Memory run_plain(LocalBarriers& barriers, CollectiveKind kind, int rank, int size) {
  const auto room = static_cast<std::size_t>(kPart * size);
  Memory memory{std::vector<float>(room), std::vector<float>(room)};
  fill(memory, rank);
  barriers.perform(kind == CollectiveKind::kExchange ? ring_of(rank, size, memory)
                                                     : call_of(kind, rank, size, memory),
                   cpu_mover());
  return memory;
}

std::vector<Memory> on_ranks(int size, const std::function<Memory(LocalBarriers&, int)>& body) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  LocalBarriers barriers(ranks, std::chrono::seconds(20));
  std::vector<Memory> out(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { out[static_cast<std::size_t>(rank)] = body(barriers, rank); });
  for (std::thread& thread : threads) thread.join();
  return out;
}

const CollectiveKind kKinds[] = {
    CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
    CollectiveKind::kAllToAll,  CollectiveKind::kBroadcast,     CollectiveKind::kReduce,
    CollectiveKind::kGather,    CollectiveKind::kScatter,       CollectiveKind::kExchange};

void compare(CollectiveKind kind, int size, int late) {
  const std::vector<Memory> expected = on_ranks(size, [&](LocalBarriers& barriers, int rank) {
    return run_plain(barriers, kind, rank, size);
  });
  const std::vector<Memory> actual = on_ranks(size, [&](LocalBarriers& barriers, int rank) {
    return run_rank(barriers, kind, rank, size, rank == late);
  });
  INFO(collective_name(kind) << " over " << size << " ranks, rank " << late << " late");
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    CHECK(expected[rank].in == actual[rank].in);
    CHECK(expected[rank].out == actual[rank].out);
  }
}

}  // namespace

TEST_CASE("collectives whose streams run late give the values of those that do not", "[local]") {
  for (CollectiveKind kind : kKinds) {
    for (int size = 1; size <= 4; ++size) {
      for (int late = 0; late < size; ++late) compare(kind, size, late);
    }
  }
}

TEST_CASE("a rank that cannot move its data fails all, and nobody waits", "[local]") {
  class FailingMover final : public LocalMover {
   public:
    LocalMark mark() override { return std::nullopt; }
    void wait(const LocalMark&) override {}
    void check_reach(const LocalCalls&, int) const override {
      throw DeviceError("cannot read the memory of cuda:1");
    }
    void copy(std::byte*, const std::byte*, std::size_t) override {}
    void clear(std::byte*, std::size_t) override {}
    void reduce(const ResolvedCollective&, std::span<const void* const>, void*,
                std::int64_t) override {}
  };
  std::vector<std::string> texts(2);
  on_ranks(2, [&](LocalBarriers& barriers, int rank) {
    Memory memory{std::vector<float>(2 * kPart), std::vector<float>(2 * kPart)};
    FailingMover failing;
    try {
      barriers.perform(call_of(CollectiveKind::kAllReduce, rank, 2, memory),
                       rank == 1 ? failing : cpu_mover());
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
    return memory;
  });
  CHECK(texts[1] == "cannot read the memory of cuda:1");
  CHECK(texts[0].find("rank 1 failed: all_reduce #1 of group \"g\" could not move its data") !=
        std::string::npos);
}

TEST_CASE("ranks on different types of device do not meet", "[local]") {
  std::vector<std::string> texts(2);
  on_ranks(2, [&](LocalBarriers& barriers, int rank) {
    Memory memory{std::vector<float>(2 * kPart), std::vector<float>(2 * kPart)};
    ResolvedCollective call = call_of(CollectiveKind::kAllReduce, rank, 2, memory);
    if (rank == 1) call.device = {DeviceType::kCuda, 2};
    try {
      barriers.perform(call, cpu_mover());
    } catch (const CollectiveError& error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
    return memory;
  });
  const std::string both = texts[0] + texts[1];
  CHECK(both.find("all_reduce by sum of f32, 1 members, 1002 elements") != std::string::npos);
  CHECK(both.find("all_reduce by sum of f32 on cuda:2, 1 members, 1002 elements") !=
        std::string::npos);
}

}  // namespace tessera::distributed
