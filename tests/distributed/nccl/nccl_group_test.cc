// What is the NCCL transport's own: which way members take, registered buffers, pairs, streams,
// sub-groups, what goes by the CPU's group beside it. That collectives give the right elements, for
// every dtype, is tested with the other transports.
#include <catch2/catch.hpp>

#include <limits>
#include <numeric>

#include "tessera/distributed/device_groups.h"
#include "tessera/distributed/objects.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tests/distributed/nccl/nccl_support.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using distributed::NcclBuffers;
using distributed::NcclSettings;
using distributed::ReduceOp;
using List = std::vector<Tensor>;

void require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

void check_all_well(const std::vector<std::exception_ptr>& errors) {
  for (const std::exception_ptr& error : errors) CHECK(text_of(error) == "");
}

// Members of a part's size, element i of member m of rank r being 100 r + 10 m + i % 7.
const std::vector<std::int64_t> kParts = {1, 0, 33, 5003, 40000, 2};

Tensor numbers(const distributed::ProcessGroup& group, std::int64_t count, int rank, int member) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>(100 * rank + 10 * member + i % 7));
  return Tensor::from_vector(out, {count}, gpu_of(group));
}

// Small and large members in one list, through one buffer or by themselves: rounds that wait for
// nothing, so that buffers are used again while they may be in use.
void check_lists(distributed::ProcessGroup& group) {
  const int ranks = group.size(), me = group.rank();
  std::vector<List> gathered, scattered, summed;
  for (int round = 0; round < 5; ++round) {
    List parts, wholes, sums, sources, shares;
    for (std::size_t m = 0; m < kParts.size(); ++m) {
      parts.push_back(numbers(group, kParts[m], me + round, static_cast<int>(m)));
      sums.push_back(clone(parts.back()));
      wholes.push_back(Tensor::empty({kParts[m] * ranks}, {.device = gpu_of(group)}));
      sources.push_back(numbers(group, kParts[m] * ranks, me + round, static_cast<int>(m)));
      shares.push_back(Tensor::empty({kParts[m]}, {.device = gpu_of(group)}));
    }
    all_gather(group, parts, wholes);
    reduce_scatter(group, sources, shares);
    all_reduce(group, sums);
    gathered.push_back(wholes);
    scattered.push_back(shares);
    summed.push_back(sums);
  }
  const int ranks_sum = ranks * (ranks - 1) / 2;
  for (std::size_t round = 0; round < gathered.size(); ++round) {
    for (std::size_t m = 0; m < kParts.size(); ++m) {
      const std::int64_t count = kParts[m];
      const auto whole = host(gathered[round][m]), share = host(scattered[round][m]),
                 sum = host(summed[round][m]);
      const int base = 10 * static_cast<int>(m) + 100 * static_cast<int>(round);
      for (std::int64_t i = 0; i < count * ranks; ++i) {
        const auto at = static_cast<std::size_t>(i);
        require(whole[at] == static_cast<float>(100 * (i / count) + base + i % count % 7),
                "gather");
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t of_all = 100 * ranks_sum + ranks * base;
        require(sum[at] == static_cast<float>(of_all + ranks * (i % 7)), "sum");
        require(share[at] == static_cast<float>(of_all + ranks * ((me * count + i) % 7)), "share");
      }
    }
  }
}

}  // namespace

TEST_CASE("nccl: lists of small and large members", "[gpu]") {
  for (const int size : {1, 2, 3, 4}) {
    CAPTURE(size);
    check_all_well(run_nccl({.size = size}, [](const NcclGroupPtr& g) { check_lists(*g); }));
  }
}

TEST_CASE("nccl: through registered buffers and symmetric windows", "[gpu]") {
  for (const NcclBuffers buffers : {NcclBuffers::kRegistered, NcclBuffers::kSymmetric}) {
    for (const std::size_t slot_bytes : {std::size_t{4096}, std::size_t{1} << 20}) {
      const NcclSettings settings{.buffers = buffers, .slots = 2, .slot_bytes = slot_bytes};
      const auto body = [](const NcclGroupPtr& g) { check_lists(*g); };
      check_all_well(run_nccl({.size = 3, .settings = settings}, body));
    }
  }
}

TEST_CASE("nccl: registered buffers are counted while they are there", "[gpu]") {
  const NcclSettings settings{.buffers = NcclBuffers::kRegistered, .slots = 3, .slot_bytes = 8192};
  const auto count = [] {
    return current_rank_context()->memory().current()[MemoryCategory::kCommunication];
  };
  check_all_well(run_nccl({.size = 2, .settings = settings}, [&](const NcclGroupPtr& g) {
    {
      const NcclGroupPtr part = g->subgroup({0, 1});
      all_reduce(*part, std::vector{on_gpu(*g, 3, 1)}).synchronize();
      require(count() == 3 * 8192, "while the group lives");
    }
    require(count() == 0, "after it");
  }));
}

TEST_CASE("nccl: with a communicator of its own a reduction does not hold up a gather", "[gpu]") {
  const NcclSettings settings{.separate_reductions = true};
  check_all_well(run_nccl({.size = 2, .settings = settings}, [](const NcclGroupPtr& g) {
    const DeviceStream other = DeviceStream::create(gpu_of(*g), StreamKind::kQueued, "reduce");
    const Tensor x = on_gpu(*g, 1000, 1), y = on_gpu(*g, 1000, 2);
    const Tensor whole = Tensor::empty({2000}, {.device = gpu_of(*g)});
    all_reduce(*g, std::vector{y}).synchronize();  // connects
    all_gather(*g, std::vector{x}, std::vector{whole}).synchronize();
    distributed::Work late;
    {
      const StreamGuard guard(other);
      stream_sleep(other, 400);
      late = all_reduce(*g, std::vector{y});
    }
    const auto gathered = all_gather(*g, std::vector{x}, std::vector{whole});
    gathered.synchronize();
    require(!late.is_done(), "the gather came after the reduction");
    late.synchronize();
    require(host(y)[999] == 8, "the sum");
  }));
}

TEST_CASE("nccl: a message needs its two ranks only", "[gpu]") {
  check_all_well(run_nccl({.size = 4}, [](const NcclGroupPtr& g) {
    const Tensor x = on_gpu(*g, 300, g->rank()), y = on_gpu(*g, 300, -1);
    if (g->rank() == 0) send(*g, std::vector{x}, 3);
    if (g->rank() == 3) {
      recv(*g, std::vector{y}, 0).synchronize();
      require(host(y)[299] == 0, "the message");
    }
    // Around a ring, both ways at once, several rounds.
    const int next = (g->rank() + 1) % 4, before = (g->rank() + 3) % 4;
    for (int round = 0; round < 5; ++round) {
      const Tensor from_next = on_gpu(*g, 1000 + round, -1), from_before = clone(from_next);
      const Tensor mine = on_gpu(*g, 1000 + round, 10 * g->rank() + round);
      exchange(*g, std::vector<distributed::PeerTensor>{{next, mine}, {before, mine}},
               std::vector<distributed::PeerTensor>{{next, from_next}, {before, from_before}});
      require(host(from_next)[999] == static_cast<float>(10 * next + round), "from the next");
      require(host(from_before)[999] == static_cast<float>(10 * before + round), "from before");
    }
  }));
}

TEST_CASE("nccl: minima and maxima of floats let a NaN win, as everywhere", "[gpu]") {
  check_all_well(run_nccl({.size = 3}, [](const NcclGroupPtr& g) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Tensor x = on_gpu(*g, 5, g->rank() == 1 ? nan : g->rank());
    const Tensor y = on_gpu(*g, 50000, g->rank());
    all_reduce(*g, std::vector{x, y}, ReduceOp::kMax);
    require(std::isnan(host(x)[4]), "the NaN");
    require(host(y)[49999] == 2, "the largest");
  }));
}

TEST_CASE("nccl: sub-groups side by side, of different ranks, and of one", "[gpu]") {
  check_all_well(run_nccl({.size = 4}, [](const NcclGroupPtr& g) {
    const int side = g->rank() / 2;
    const NcclGroupPtr mine = g->subgroup(side == 0 ? std::vector{0, 1} : std::vector{3, 2});
    const NcclGroupPtr reference = g->subgroup(side == 0 ? std::vector{0, 1} : std::vector{3, 2});
    const NcclGroupPtr alone = g->subgroup({g->rank()});
    const Tensor x = on_gpu(*g, 10, g->rank() + 1);
    all_reduce(*mine, std::vector{x});
    all_reduce(*reference, std::vector{x});
    all_reduce(*alone, std::vector{x}, ReduceOp::premul_sum(0.5));
    require(host(x)[0] == (side == 0 ? 3.f : 7.f), "the sums");
    const Tensor part = on_gpu(*g, 2, g->rank()), whole = on_gpu(*g, 4, -1);
    all_gather(*mine, std::vector{part}, std::vector{whole});
    require(host(whole)[0] == (side == 0 ? 0.f : 3.f), "in the group's order");
  }));
}

TEST_CASE("nccl: a barrier, and the wrong device", "[gpu]") {
  check_all_well(run_nccl({.size = 2}, [](const NcclGroupPtr& g) {
    barrier(*g);
    require(g->backend() == "nccl", "its name");
    const Tensor host_tensor = full({2}, 1, {.device = kCpu});
    try {
      all_reduce(*g, std::vector{host_tensor});
      throw std::runtime_error("carried a CPU tensor");
    } catch (const InvalidArgument&) {
    }
    const Tensor elsewhere = full({2}, 1, {.device = {DeviceType::kCuda, 1 - g->rank()}});
    try {
      all_reduce(*g, std::vector{elsewhere});
      throw std::runtime_error("carried another rank's tensor");
    } catch (const InvalidArgument& error) {
      require(std::string(error.what()).find("and this rank's GPU is cuda:") != std::string::npos,
              error.what());
    }
  }));
}

TEST_CASE("nccl: beside a CPU transport, objects and CUDA tensors in one group", "[gpu]") {
  auto local = distributed::make_local_groups("g", 2);
  check_all_well(run_nccl({.size = 2}, [&](const NcclGroupPtr& nccl) {
    const auto r = static_cast<std::size_t>(nccl->rank());
    const NcclGroupPtr g =
        distributed::by_device({{DeviceType::kCpu, local[r]}, {DeviceType::kCuda, nccl}});
    const auto texts = distributed::all_gather_texts(*g, r == 0 ? "one" : "another");
    require(texts[0] == "one" && texts[1] == "another", "the texts");
    const Tensor x = on_gpu(*g, 4, 2), y = full({4}, 3, {.device = kCpu});
    all_reduce(*g, std::vector{x});
    all_reduce(*g, std::vector{y});
    require(host(x)[3] == 4 && host(y)[3] == 6, "the sums");
  }));
}

TEST_CASE("nccl: options that cannot be are refused", "[gpu]") {
  const auto store = std::make_shared<distributed::MemoryStore>();
  using distributed::make_nccl_group;
  CHECK_THROWS_AS(make_nccl_group("g", {.rank = 2, .size = 2, .store = store}), InvalidArgument);
  CHECK_THROWS_WITH(make_nccl_group("g", {}), Contains("no store for the ranks to meet in"));
  CHECK_THROWS_WITH(make_nccl_group("g", {.store = store, .timeout = {}}),
                    Contains("timeout must be positive"));
  CHECK_THROWS_WITH(
      make_nccl_group(
          "g", {.store = store, .settings = {.buffers = NcclBuffers::kRegistered, .slots = 0}}),
      Contains("need at least one"));
  CHECK_THROWS_AS(make_nccl_group("g", {.store = store, .device = 99}), DeviceError);
}

}  // namespace tessera::testing
