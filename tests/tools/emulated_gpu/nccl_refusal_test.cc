// What the emulated NCCL refuses, and what it does with ranks that disagree.

#include <barrier>
#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tests/tools/emulated_gpu/nccl_ranks.h"

namespace tessera::testing {
namespace {

TEST_CASE("two ranks of one host on one GPU are refused") {
  const auto init = [](const char* host_of_second) {
    const ncclUniqueId id = fresh_id();
    ncclComm_t comms[2] = {};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config) == ncclInProgress);
    if (host_of_second != nullptr) setenv("NCCL_HOSTID", host_of_second, 1);
    REQUIRE(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config) == ncclInProgress);
    unsetenv("NCCL_HOSTID");
    ncclResult_t results[2];
    for (int rank : {0, 1}) {
      REQUIRE(ncclCommGetAsyncError(comms[rank], &results[rank]) == ncclSuccess);
    }
    REQUIRE(results[0] == results[1]);
    for (ncclComm_t comm : comms) REQUIRE(ncclCommAbort(comm) == ncclSuccess);
    return results[0];
  };
  REQUIRE(init(nullptr) == ncclInvalidUsage);
  REQUIRE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU") == 0);
  REQUIRE(init("other") == ncclSuccess);
  setenv("TESSERA_EMULATED_NCCL_SHARE", "1", 1);
  REQUIRE(init(nullptr) == ncclSuccess);
  unsetenv("TESSERA_EMULATED_NCCL_SHARE");
}

TEST_CASE("ids, ranks and configs that cannot be") {
  ncclComm_t comm = nullptr, second = nullptr;
  const ncclUniqueId nothing{}, id = fresh_id();
  REQUIRE(ncclGetUniqueId(nullptr) == ncclInvalidArgument);
  REQUIRE(join(&comm, 1, nothing, 0) == ncclInvalidArgument);
  REQUIRE(join(&comm, 2, id, 2) == ncclInvalidArgument);
  REQUIRE(join(&comm, 0, id, 0) == ncclInvalidArgument);
  REQUIRE(join(nullptr, 1, id, 0) == ncclInvalidArgument);
  ncclConfig_t config{};
  REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  config.blocking = 0;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  REQUIRE(ncclCommInitRankConfig(&second, 2, id, 0, &config) == ncclInvalidUsage);
  REQUIRE(ncclCommInitRankConfig(&second, 3, id, 1, &config) == ncclInvalidUsage);
  REQUIRE(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("arguments that cannot be") {
  on_ranks(1, [](const Rank& me) {
    Numbers<float> x({1, 2, 3, 4});
    float on_host = 0;
    const auto bad = [](ncclResult_t result) { expect(result == ncclInvalidArgument, "accepted"); };
    const auto reduce = [&](const void* from, void* to, ncclDataType_t type, ncclRedOp_t op) {
      return ncclAllReduce(from, to, 2, type, op, me.comm, me.stream);
    };
    bad(reduce(nullptr, x.data(), ncclFloat, ncclSum));
    bad(reduce(&on_host, x.data(), ncclFloat, ncclSum));
    bad(reduce(x.data() + 4, x.data(), ncclFloat, ncclSum));  // beyond the end
    bad(reduce(x.data(), x.data() + 1, ncclFloat, ncclSum));  // half in place
    bad(reduce(reinterpret_cast<char*>(x.data()) + 1, x.data(), ncclFloat, ncclSum));
    bad(reduce(x.data(), x.data(), ncclNumTypes, ncclSum));
    bad(reduce(x.data(), x.data(), ncclFloat, static_cast<ncclRedOp_t>(77)));
    bad(ncclBroadcast(x.data(), x.data(), 2, ncclFloat, 1, me.comm, me.stream));
    bad(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, nullptr, me.stream));
    bad(ncclCommRegister(me.comm, &on_host, 4, nullptr));
    ncclWindow_t window;
    bad(ncclCommWindowRegister(me.comm, x.data(), 4, &window, NCCL_WIN_DEFAULT));
    ok_cuda(cudaSetDevice(1));
    cudaStream_t elsewhere;
    ok_cuda(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking));
    bad(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, elsewhere));
    ok_cuda(cudaStreamDestroy(elsewhere));
  });
}

TEST_CASE("an operator belongs to one communicator and one type") {
  on_ranks(1, [](const Rank& me) {
    ncclComm_t other;
    const ncclUniqueId id = fresh_id();
    ok(join(&other, 1, id, 0));
    float factor = 2;
    ncclRedOp_t op;
    ok(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, me.comm));
    Numbers<float> x({1});
    expect(ncclAllReduce(x.data(), x.data(), 1, ncclFloat, op, other, me.stream) ==
               ncclInvalidArgument,
           "another's");
    expect(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, op, me.comm, me.stream) ==
               ncclInvalidArgument,
           "another type");
    ok(ncclRedOpDestroy(op, me.comm));
    ok(ncclCommDestroy(other));
  });
}

TEST_CASE("an error in a group comes back from its end, and nothing is issued") {
  on_ranks(1, [](const Rank& me) {
    Numbers<float> x({1}), y({2});
    ok(ncclGroupStart());
    ok(ncclAllReduce(x.data(), y.data(), 1, ncclFloat, ncclSum, me.comm, me.stream));
    expect(ncclAllReduce(nullptr, x.data(), 1, ncclFloat, ncclSum, me.comm, me.stream) ==
               ncclInvalidArgument,
           "accepted");
    expect(ncclGroupEnd() == ncclInvalidArgument, "forgotten");
    expect_equal(y.read(me), {2}, "issued");
  });
}

// Two ranks that call `first` and `second`: both see the error, their streams wait until they
// abort.
void disagree(const std::function<ncclResult_t(const Rank&, float*)>& first,
              const std::function<ncclResult_t(const Rank&, float*)>& second) {
  const ncclUniqueId id = fresh_id();
  std::barrier all_have_looked(2);
  on_threads(2, [&](int rank) {
    Rank me{.rank = rank, .ranks = 2};
    ok_cuda(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    ok(join(&me.comm, 2, id, rank));
    Numbers<float> x(std::vector<float>(8, 1));
    ok((rank == 0 ? first : second)(me, x.data()));
    while (me.async_error() == ncclSuccess) std::this_thread::yield();
    const bool seen = me.async_error() == ncclInvalidUsage;
    const bool waits = cudaStreamQuery(me.stream) == cudaErrorNotReady;
    all_have_looked.arrive_and_wait();
    ok(ncclCommAbort(me.comm));
    me.synchronize();
    expect(seen, "another error");
    expect(waits, "the stream went on");
    ok_cuda(cudaStreamDestroy(me.stream));
  });
}

TEST_CASE("ranks that disagree wait for ever, and their communicators report it") {
  const auto sum_of = [](std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    return [=](const Rank& me, float* x) {
      return ncclAllReduce(x, x, count, type, op, me.comm, me.stream);
    };
  };
  const auto floats = sum_of(2, ncclFloat, ncclSum);
  disagree(floats, sum_of(1, ncclFloat, ncclSum));
  disagree(floats, sum_of(2, ncclInt32, ncclSum));
  disagree(floats, sum_of(2, ncclFloat, ncclMax));
  disagree(floats, [](const Rank& me, float* x) {
    return ncclBroadcast(x, x, 2, ncclFloat, 0, me.comm, me.stream);
  });
  disagree(
      [](const Rank& me, float* x) { return ncclSend(x, 2, ncclFloat, 1, me.comm, me.stream); },
      [](const Rank& me, float* x) { return ncclRecv(x, 3, ncclFloat, 0, me.comm, me.stream); });
}

TEST_CASE("results have texts") {
  REQUIRE(std::string(ncclGetErrorString(ncclRemoteError)) ==
          "remote process exited or there was a network error");
  REQUIRE(std::string(ncclGetErrorString(ncclNumResults)) == "unknown result code");
}

}  // namespace
}  // namespace tessera::testing
