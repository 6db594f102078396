// What collectives of the emulated NCCL compute.

#include <catch2/catch.hpp>
#include <cstdint>

#include "tessera/tensor/half.h"
#include "tessera/tests/tools/emulated_gpu/nccl_ranks.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;

// Two numbers of each rank: 10 rank + 1 and 10 rank + 2.
Floats own(int rank) { return {10.0f * rank + 1, 10.0f * rank + 2}; }

TEST_CASE("an all-reduce folds all ranks, in place too") {
  on_ranks(3, [](const Rank& me) {
    Numbers<float> send(own(me.rank)), recv({0, 0});
    ok(ncclAllReduce(send.data(), recv.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    expect_equal(recv.read(me), {33, 36}, "sum");
    ok(ncclAllReduce(send.data(), recv.data(), 2, ncclFloat, ncclMax, me.comm, me.stream));
    expect_equal(recv.read(me), {21, 22}, "max");
    ok(ncclAllReduce(send.data(), recv.data(), 2, ncclFloat, ncclMin, me.comm, me.stream));
    expect_equal(recv.read(me), {1, 2}, "min");
    ok(ncclAllReduce(send.data(), recv.data(), 2, ncclFloat, ncclProd, me.comm, me.stream));
    expect_equal(recv.read(me), {231, 528}, "product");
    ok(ncclAllReduce(send.data(), send.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    expect_equal(send.read(me), {33, 36}, "in place");
  });
}

TEST_CASE("an average of doubles is as exact as they are") {
  on_ranks(3, [](const Rank& me) {
    Numbers<double> number({static_cast<double>(me.rank)});
    ok(ncclAllReduce(number.data(), number.data(), 1, ncclDouble, ncclAvg, me.comm, me.stream));
    expect_equal(number.read(me), {1}, "average");
  });
}

TEST_CASE("averages, and sums of what a factor scales") {
  on_ranks(2, [](const Rank& me) {
    Numbers<float> send(own(me.rank)), recv({0, 0});
    ok(ncclAllReduce(send.data(), recv.data(), 2, ncclFloat, ncclAvg, me.comm, me.stream));
    expect_equal(recv.read(me), {6, 7}, "average");
    Numbers<std::int32_t> whole({me.rank == 0 ? 3 : 4});
    ok(ncclAllReduce(whole.data(), whole.data(), 1, ncclInt32, ncclAvg, me.comm, me.stream));
    expect_equal(whole.read(me), {3}, "average of whole numbers");

    float factor = me.rank == 0 ? 0.5f : 2;
    ncclRedOp_t op;
    ok(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, me.comm));
    factor = 0;
    ok(ncclAllReduce(send.data(), recv.data(), 2, ncclFloat, op, me.comm, me.stream));
    ok(ncclRedOpDestroy(op, me.comm));
    expect_equal(recv.read(me), {22.5f, 25}, "own factors");
    expect(ncclRedOpDestroy(op, me.comm) == ncclInvalidArgument, "destroyed twice");
  });
}

TEST_CASE("sums of 16 bits round after each rank") {
  on_ranks(3, [](const Rank& me) {
    // 256 + 1 is a tie that goes to 256, twice; the exact sum, 258, has a number of its own.
    Numbers<BFloat16> x({BFloat16(me.rank == 0 ? 256.0f : 1.0f)});
    ok(ncclAllReduce(x.data(), x.data(), 1, ncclBfloat16, ncclSum, me.comm, me.stream));
    expect(static_cast<float>(x.read(me)[0]) == 256, "bf16");
    Numbers<Float16> y({Float16(me.rank == 0 ? 2048.0f : 1.0f)});
    ok(ncclAllReduce(y.data(), y.data(), 1, ncclFloat16, ncclSum, me.comm, me.stream));
    expect(static_cast<float>(y.read(me)[0]) == 2048, "f16");
  });
}

TEST_CASE("an all-gather and reduce-scatters") {
  on_ranks(2, [](const Rank& me) {
    Numbers<float> pair(own(me.rank)), four({1, 2, 3, 4 + 4.0f * me.rank}), two({0, 0}),
        all({0, 0, 0, 0});
    ok(ncclAllGather(pair.data(), all.data(), 2, ncclFloat, me.comm, me.stream));
    expect_equal(all.read(me), {1, 2, 11, 12}, "all-gather");
    ok(ncclReduceScatter(four.data(), two.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    expect_equal(two.read(me), me.rank == 0 ? Floats{2, 4} : Floats{6, 12}, "reduce-scatter");
    ok(ncclReduceScatter(four.data(), four.data() + 2 * me.rank, 2, ncclFloat, ncclSum, me.comm,
                         me.stream));
    expect_equal(four.read(me), me.rank == 0 ? Floats{2, 4, 3, 4} : Floats{1, 2, 6, 12},
                 "reduce-scatter in place");
  });
}

TEST_CASE("roots") {
  on_ranks(3, [](const Rank& me) {
    Numbers<float> send(own(me.rank)), recv({-1, -1});
    ok(ncclBroadcast(me.rank == 1 ? send.data() : nullptr, recv.data(), 2, ncclFloat, 1, me.comm,
                     me.stream));
    expect_equal(recv.read(me), {11, 12}, "broadcast");
    ok(ncclReduce(send.data(), me.rank == 2 ? recv.data() : nullptr, 2, ncclFloat, ncclSum, 2,
                  me.comm, me.stream));
    expect_equal(recv.read(me), me.rank == 2 ? Floats{33, 36} : Floats{11, 12}, "reduce");
  });
}

TEST_CASE("sends and receives of a group run at the same time") {
  on_ranks(3, [](const Rank& me) {
    const int next = (me.rank + 1) % 3, before = (me.rank + 2) % 3;
    Numbers<float> send(own(me.rank)), recv({0, 0});
    ok(ncclGroupStart());
    ok(ncclSend(send.data(), 2, ncclFloat, next, me.comm, me.stream));
    ok(ncclRecv(recv.data(), 2, ncclFloat, before, me.comm, me.stream));
    ok(ncclGroupEnd());
    expect_equal(recv.read(me), own(before), "ring");
    // Two to one pair keep their order.
    Numbers<float> other({5, 6});
    ok(ncclGroupStart());
    if (me.rank == 0) {
      ok(ncclSend(send.data(), 2, ncclFloat, 1, me.comm, me.stream));
      ok(ncclSend(other.data(), 2, ncclFloat, 1, me.comm, me.stream));
    }
    if (me.rank == 1) {
      ok(ncclRecv(recv.data(), 2, ncclFloat, 0, me.comm, me.stream));
      ok(ncclRecv(other.data(), 2, ncclFloat, 0, me.comm, me.stream));
    }
    ok(ncclGroupEnd());
    if (me.rank == 1) expect_equal(recv.read(me), {1, 2}, "first");
    expect_equal(other.read(me), {5, 6}, "second");
  });
}

TEST_CASE("operations wait for what their stream does before, and come in their order") {
  on_ranks(2, [](const Rank& me) {
    Numbers<float> x({0, 0}), y(own(me.rank));
    ok_cuda(cudaMemcpyAsync(x.data(), y.data(), 8, cudaMemcpyDeviceToDevice, me.stream));
    ok(ncclGroupStart());
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    ok(ncclAllReduce(y.data(), y.data(), 2, ncclFloat, ncclMax, me.comm, me.stream));
    ok(ncclGroupEnd());
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    expect_equal(x.read(me), {24, 28}, "twice");
    expect_equal(y.read(me), {11, 12}, "in the group");
  });
}

TEST_CASE("streams of one group wait for each other, and so do streams of one communicator") {
  on_ranks(2, [](const Rank& me) {
    cudaStream_t second;
    ok_cuda(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    Numbers<float> x(own(me.rank)), y(own(me.rank));
    ok(ncclGroupStart());
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    ok(ncclAllReduce(y.data(), y.data(), 2, ncclFloat, ncclMax, me.comm, second));
    ok(ncclGroupEnd());
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, second));
    ok_cuda(cudaStreamSynchronize(second));
    expect_equal(x.read(me), {24, 28}, "x");
    expect_equal(y.read(me), {11, 12}, "y");
    ok_cuda(cudaStreamDestroy(second));
  });
}

TEST_CASE("collectives of nothing do not count") {
  on_ranks(2, [](const Rank& me) {
    Numbers<float> x(own(me.rank));
    if (me.rank == 0) {
      ok(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, me.comm, me.stream));
    }
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    expect_equal(x.read(me), {12, 14}, "sum");
  });
}

TEST_CASE("a captured collective runs at each launch of the graph") {
  on_ranks(2, [](const Rank& me) {
    Numbers<float> x(own(me.rank));
    cudaGraph_t graph;
    cudaGraphExec_t program;
    ok_cuda(cudaStreamBeginCapture(me.stream, cudaStreamCaptureModeThreadLocal));
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclSum, me.comm, me.stream));
    ok_cuda(cudaStreamEndCapture(me.stream, &graph));
    ok_cuda(cudaGraphInstantiate(&program, graph, 0));
    ok_cuda(cudaGraphLaunch(program, me.stream));
    ok(ncclAllReduce(x.data(), x.data(), 2, ncclFloat, ncclMax, me.comm, me.stream));
    ok_cuda(cudaGraphLaunch(program, me.stream));
    expect_equal(x.read(me), {24, 28}, "two launches");
    ok_cuda(cudaGraphExecDestroy(program));
    ok_cuda(cudaGraphDestroy(graph));
  });
}

}  // namespace
}  // namespace tessera::testing
