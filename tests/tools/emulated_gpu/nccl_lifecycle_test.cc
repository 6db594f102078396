// Communicators of the emulated NCCL from their making to their end.

#include <atomic>
#include <catch2/catch.hpp>

#include "tessera/tests/tools/emulated_gpu/nccl_ranks.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

TEST_CASE("one thread may make several communicators in a group") {
  const ncclUniqueId id = fresh_id();
  ncclComm_t comms[2];
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(cudaSetDevice(rank) == cudaSuccess);
    REQUIRE(join(&comms[rank], 2, id, rank) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t comm : comms) REQUIRE(ncclCommFinalize(comm) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (ncclComm_t comm : comms) REQUIRE(ncclCommDestroy(comm) == ncclSuccess);
  REQUIRE(ncclCommDestroy(comms[0]) == ncclInvalidArgument);
  REQUIRE(ncclGroupEnd() == ncclInvalidUsage);
}

TEST_CASE("a non-blocking communicator says so until it is asked again") {
  const ncclUniqueId id = fresh_id();
  std::atomic<bool> may_join{false};
  on_threads(2, [&](int rank) {
    Rank me{.rank = rank, .ranks = 2};
    ok_cuda(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    ncclConfig_t config = non_blocking();
    while (rank == 1 && !may_join) std::this_thread::yield();
    expect(ncclCommInitRankConfig(&me.comm, 2, id, rank, &config) == ncclInProgress, "init");
    if (rank == 0) expect(me.async_error() == ncclInProgress, "alone");
    Numbers<float> x({rank + 1.0f});
    if (rank == 0) {
      expect(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream) ==
                 ncclInvalidArgument,
             "used before it was ready");
    }
    may_join = true;
    ok(me.settled());
    expect(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream) ==
               ncclInProgress,
           "operation");
    expect_equal(x.read(me), {rank + 1.0f}, "not issued yet");
    expect(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream) ==
               ncclInvalidArgument,
           "used while in progress");
    ok(me.settled());
    expect_equal(x.read(me), {3}, "sum");
    expect(ncclCommFinalize(me.comm) == ncclInProgress, "finalize");
    if (rank == 0) ok(me.settled());
    while (ncclCommDestroy(me.comm) != ncclSuccess) std::this_thread::yield();
    ok_cuda(cudaStreamDestroy(me.stream));
  });
}

TEST_CASE("an abort frees the streams of those who wait, who then know") {
  const ncclUniqueId id = fresh_id();
  on_threads(2, [&](int rank) {
    Rank me{.rank = rank, .ranks = 2};
    ok_cuda(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    ok(join(&me.comm, 2, id, rank));
    if (rank == 0) {
      Numbers<float> x({1});
      ok(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream));
      const float nothing = x.read(me)[0];
      expect(nothing != nothing, "a number where none was received");
      expect(me.async_error() == ncclRemoteError, "unseen");
      expect(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream) ==
                 ncclRemoteError,
             "used after it has failed");
    }
    ok(ncclCommAbort(me.comm));
    ok_cuda(cudaStreamDestroy(me.stream));
  });
}

TEST_CASE("a rank ends its own wait by an abort from another thread") {
  on_threads(1, [](int) {
    const ncclUniqueId id = fresh_id();
    Rank me;
    ok_cuda(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    ncclConfig_t config = non_blocking();
    expect(ncclCommInitRankConfig(&me.comm, 2, id, 0, &config) == ncclInProgress, "init");
    ok(ncclCommAbort(me.comm));  // while the other rank never comes
    const ncclUniqueId alone = fresh_id();
    ok(join(&me.comm, 1, alone, 0));
    Numbers<float> x({1});
    ok(ncclRecv(x.data(), 1, ncclFloat, 0, me.comm, me.stream));  // no rank sends
    std::thread watch([&] { ok(ncclCommAbort(me.comm)); });
    me.synchronize();
    watch.join();
    ok_cuda(cudaStreamDestroy(me.stream));
  });
}

TEST_CASE("who ends a communicator waits for the graphs with calls of it") {
  for (const bool aborts : {true, false}) {
    on_threads(1, [aborts](int) {
      Rank me;
      ok_cuda(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
      ok(join(&me.comm, 1, fresh_id(), 0));
      Numbers<float> x({1});
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t program = nullptr;
      ok_cuda(cudaStreamBeginCapture(me.stream, cudaStreamCaptureModeThreadLocal));
      ok(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream));
      ok_cuda(cudaStreamEndCapture(me.stream, &graph));
      ok_cuda(cudaGraphInstantiate(&program, graph, 0));
      ok_cuda(cudaGraphDestroy(graph));
      std::atomic<bool> ended{false};
      std::thread other([&] {
        ok(aborts ? ncclCommAbort(me.comm) : ncclCommDestroy(me.comm));
        ended = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const bool early = ended;
      ok_cuda(cudaGraphExecDestroy(program));
      other.join();
      ok_cuda(cudaStreamDestroy(me.stream));
      expect(!early, "it has ended while there is a graph");
    });
  }
}

TEST_CASE("memory of NCCL, buffers and windows") {
  on_ranks(2, [](const Rank& me) {
    void *memory = nullptr, *handle = nullptr;
    ok(ncclMemAlloc(&memory, 100));
    expect(reinterpret_cast<std::uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT == 0,
           "alignment");
    ok(ncclCommRegister(me.comm, memory, 100, &handle));
    expect(ncclMemFree(memory) == ncclInvalidUsage, "freed while registered");
    ok(ncclCommDeregister(me.comm, handle));
    expect(ncclCommDeregister(me.comm, handle) == ncclInvalidArgument, "deregistered twice");

    ncclWindow_t window = nullptr;
    ok(ncclCommWindowRegister(me.comm, memory, 100, &window, NCCL_WIN_COLL_SYMMETRIC));
    auto* x = static_cast<float*>(memory);
    const float mine = me.rank + 1.0f;
    ok_cuda(cudaMemcpy(x + 4, &mine, sizeof mine, cudaMemcpyHostToDevice));
    ok(ncclAllReduce(x + 4, x + 4, 1, ncclFloat, ncclSum, me.comm, me.stream));
    float sum = 0;
    me.synchronize();
    ok_cuda(cudaMemcpy(&sum, x + 4, sizeof sum, cudaMemcpyDeviceToHost));
    expect(sum == 3, "sum in a window");
    ok(ncclCommWindowDeregister(me.comm, window));
    expect(ncclCommWindowDeregister(me.comm, window) == ncclInvalidArgument, "twice");
    ok(ncclMemFree(memory));
    expect(ncclMemFree(memory) == ncclInvalidArgument, "freed twice");
  });
}

}  // namespace
}  // namespace tessera::testing
