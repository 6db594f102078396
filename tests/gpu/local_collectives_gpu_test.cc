// Rank threads on GPUs: every collective gives the CPU's bits, also if one rank's stream is late,
// on several streams, and with memory that is overwritten right after. The ranks read each other's
// memory, all on one GPU or distributed over as many as the target requests. With NCCL each rank
// has a GPU of its own, and floating-point sums are compared with a tolerance for their order.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::PeerTensor;
using distributed::ProcessGroup;
using distributed::ReduceOp;

// The GPU of this rank.
Device gpu_of(RankTest& t) {
  if (t.world().device().is_cuda()) return t.world().device();
  const char* gpus = std::getenv("TESSERA_TEST_GPUS");
  return {DeviceType::kCuda, t.rank() % (gpus == nullptr ? 1 : std::max(1, std::atoi(gpus)))};
}

using List = std::vector<Tensor>;

// Elements of each rank's part.
const std::vector<std::int64_t> kCounts = {1, 0, 7, 5003};

Tensor values(int rank, std::int64_t count, DType dtype) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(0.37f * static_cast<float>((i * 31 + rank * 17) % 199) +
                  static_cast<float>(rank));
  return cast(Tensor::from_vector<float>(out, {count}, kCpu), dtype);
}

List lists_of(int rank, std::int64_t parts, DType dtype) {
  List out;
  for (std::int64_t count : kCounts) out.push_back(values(rank, count * parts, dtype));
  return out;
}

List empties(std::int64_t parts, DType dtype) {
  List out;
  for (std::int64_t count : kCounts)
    out.push_back(zeros({count * parts}, {.dtype = dtype, .device = kCpu}));
  return out;
}

List moved(const List& tensors, Device device) {
  List out;
  for (const Tensor& tensor : tensors) out.push_back(to_device(tensor, device));
  return out;
}

// A collective over lists: what goes in (and is changed in place), and what comes out.
using Call = std::function<void(ProcessGroup&, const List& in, const List& out)>;

// Whether NCCL adds, in an order of its own.
bool is_rounded(const char* what, DType dtype) {
  const std::string name = what;
  return test_transport() == "nccl" && is_floating(dtype) && name.find("reduce") == 0;
}

void check_same(RankTest& t, const Tensor& gpu, const Tensor& cpu, const std::string& what,
                bool rounded) {
  if (!rounded) {
    t.check_equal(to_device(gpu, kCpu), cpu, what);
    return;
  }
  const double step = cpu.dtype() == DType::kBF16 ? 0.02 : cpu.dtype() == DType::kF16 ? 3e-3 : 1e-6;
  t.check_close(to_device(gpu, kCpu), cpu, {.rtol = step, .atol = step}, what);
}

// Runs the collective on the CPU and on the GPU, there with one rank's stream late and with memory
// that is overwritten as soon as the results are copied.
void compare(RankTest& t, const char* what, const List& in, const List& out, const Call& call) {
  const Device gpu = gpu_of(t);
  const List gpu_in = moved(in, gpu), gpu_out = moved(out, gpu);
  call(t.group(), in, out);
  const DType dtype = in.empty() ? out.front().dtype() : in.front().dtype();
  const bool rounded = is_rounded(what, dtype);
  for (int late = 0; late < t.size(); ++late) {
    const List a = moved(moved(gpu_in, kCpu), gpu), b = moved(moved(gpu_out, kCpu), gpu);
    if (late == t.rank()) stream_sleep(current_stream(gpu), 2);
    call(t.group(), a, b);
    List kept_in, kept_out;
    for (const Tensor& x : a) kept_in.push_back(clone(x));
    for (const Tensor& x : b) kept_out.push_back(clone(x));
    for (const Tensor& x : a) fill_(x, 1);
    for (const Tensor& x : b) fill_(x, 1);
    for (std::size_t i = 0; i < in.size(); ++i) {
      check_same(t, kept_in[i], in[i], fmt::format("{}: in {}", what, i), rounded);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      check_same(t, kept_out[i], out[i], fmt::format("{}: out {}", what, i), rounded);
    }
  }
}

void compare_all(RankTest& t, DType dtype) {
  const int root = t.size() - 1;
  const bool is_root = t.rank() == root;
  const List parts = lists_of(t.rank(), 1, dtype), wholes = lists_of(t.rank(), t.size(), dtype);
  const List empty_parts = empties(1, dtype), empty_wholes = empties(t.size(), dtype);
  const auto copies = [](const List& list) {
    List out;
    for (const Tensor& x : list) out.push_back(clone(x));
    return out;
  };
  compare(t, "all_gather", parts, copies(empty_wholes),
          [](ProcessGroup& g, const List& in, const List& out) { all_gather(g, in, out); });
  compare(t, "all_to_all", wholes, copies(empty_wholes),
          [](ProcessGroup& g, const List& in, const List& out) { all_to_all(g, in, out); });
  compare(t, "broadcast", copies(parts), {},
          [&](ProcessGroup& g, const List& in, const List&) { broadcast(g, in, root); });
  compare(t, "gather", parts, is_root ? copies(empty_wholes) : List{},
          [&](ProcessGroup& g, const List& in, const List& out) { gather(g, in, out, root); });
  compare(t, "scatter", is_root ? wholes : List{}, copies(empty_parts),
          [&](ProcessGroup& g, const List& in, const List& out) { scatter(g, in, out, root); });
  for (const ReduceOp& op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct,
                             ReduceOp::kAverage, ReduceOp::premul_sum(0.3)}) {
    if (op.needs_floating() && !is_floating(dtype)) continue;
    compare(
        t, "reduce_scatter", wholes, copies(empty_parts),
        [&](ProcessGroup& g, const List& in, const List& out) { reduce_scatter(g, in, out, op); });
    compare(t, "reduce of all", copies(parts), {},
            [&](ProcessGroup& g, const List& in, const List&) { all_reduce(g, in, op); });
    compare(t, "reduce", copies(parts), {},
            [&](ProcessGroup& g, const List& in, const List&) { reduce(g, in, root, op); });
  }
}

}  // namespace

TESSERA_RANK_TEST("on a GPU every collective has the CPU's bits, for every dtype", "[gpu]") {
  for (DType dtype : kAllDTypes) compare_all(t, dtype);
}

TESSERA_RANK_TEST("on a GPU messages arrive, in order for each pair", "[gpu]") {
  const Device gpu = gpu_of(t);
  if (t.rank() == 0) stream_sleep(current_stream(gpu), 5);
  std::vector<PeerTensor> sends, receives;
  for (int peer = 0; peer < t.size(); ++peer) {
    for (int round = 0; round < 2; ++round) {
      sends.push_back(
          {peer, to_device(values(t.rank() + 10 * round, 100 + peer, DType::kF32), gpu)});
      receives.push_back({peer, full({100 + t.rank()}, 77, {.device = gpu})});
    }
  }
  exchange(t.group(), sends, receives, "all pairs");
  for (const PeerTensor& each : sends) fill_(each.tensor, -1);
  for (std::size_t i = 0; i < receives.size(); ++i) {
    t.check_equal(to_device(receives[i].tensor, kCpu),
                  values(receives[i].peer + (i % 2 == 1 ? 10 : 0), 100 + t.rank(), DType::kF32),
                  fmt::format("message {}", i));
  }
}

TESSERA_RANK_TEST("on a GPU collectives on two streams, and hundreds of them", "[gpu]") {
  const Device gpu = gpu_of(t);
  const DeviceStream comm = DeviceStream::create(gpu, StreamKind::kQueued, "comm");
  const std::int64_t count = 3001;
  std::vector<Tensor> sums;
  for (int round = 0; round < 200; ++round) {
    const Tensor x = full({count}, t.rank() + round, {.device = gpu});
    const Tensor whole = Tensor::empty({count * t.size()}, {.device = gpu});
    const DeviceEvent made = current_stream(gpu).record();
    distributed::Work gathered;
    {
      const StreamGuard guard(comm);
      comm.wait(made);
      if (round % 50 == t.rank()) stream_sleep(comm, 1);
      gathered = all_gather(t.group(), std::vector{x}, std::vector{whole});
    }
    const Tensor sum = clone(x);
    all_reduce(t.group(), std::vector{sum});
    gathered.wait();  // x and whole are returned to this stream after the gather
    sums.push_back(clone(whole.slice(0, 0, 1)));
    sums.push_back(sum.slice(0, 0, 1));
  }
  std::int64_t wrong = 0;
  for (int round = 0; round < 200; ++round) {
    const auto at = static_cast<std::size_t>(2 * round);
    const int expected = t.size() * round + t.size() * (t.size() - 1) / 2;
    wrong += sums[at].item<float>() != static_cast<float>(round);
    wrong += sums[at + 1].item<float>() != static_cast<float>(expected);
  }
  t.check(wrong == 0, "{} wrong results", wrong);
}

TESSERA_RANK_TEST("on a GPU no host waits for the GPU", "[gpu]") {
  const Device gpu = gpu_of(t);
  const Tensor x = full({1000}, 1, {.device = gpu});
  all_reduce(t.group(), std::vector{full({1}, 1, {.device = gpu})});  // connects, if needed
  current_stream(gpu).synchronize();
  stream_sleep(current_stream(gpu), 200);
  const auto start = std::chrono::steady_clock::now();
  const distributed::Work work = all_reduce(t.group(), std::vector{x});
  const auto issued = std::chrono::steady_clock::now() - start;
  t.check(issued < std::chrono::milliseconds(150), "the call took longer than the issue");
  t.check(!work.is_done(), "done before its stream woke up");
  t.check_equal(to_device(x, kCpu), full({1000}, t.size(), {.device = kCpu}), "sum");
}

// Checked groups compare the devices first; with NCCL the ranks would wait for each other.
TESSERA_RANK_TEST_WITH("tensors on a GPU and on the CPU do not meet", "[gpu]",
                       {.worlds = {2}, .expect_failure = "between ranks"}) {
  const Device gpu = gpu_of(t);
  const Tensor x = full({4}, 1, {.device = t.rank() == 0 ? kCpu : gpu});
  all_reduce(t.group(), std::vector{x});
}

TESSERA_RANK_TEST_WITH("the memory of a world on a GPU goes back", "[gpu]", {.worlds = {3}}) {
  const Device gpu = gpu_of(t);
  {
    const Tensor x = full({100000}, 1, {.device = gpu});
    for (int i = 0; i < 10; ++i) all_reduce(t.group(), std::vector{x});
  }
  t.check(current_rank_context()->memory().current().total() == 0, "bytes are still counted");
}

}  // namespace tessera::testing
