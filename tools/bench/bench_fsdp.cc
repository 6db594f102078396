// The overhead of sharding:
//
//     tools/bazel run //tools/bench:bench_fsdp
//
// Host time: microseconds of the issuing thread per group and step, in wall-clock and in CPU time
// (the second excludes time taken by other programs). A chain of 64 linear layers of 8 x 8 runs
// forward, backward and zero_grad; each layer is a group. It runs as one rank of a fake world of 8, or
// of as many as a row says.
// A figure is the median over rounds of (sharded step - plain step) / 64, both measured in turns in
// each round. It includes the gradients' slots and the collectives' own checks, counters and issue;
// "collectives" is the time of these alone, called directly. On the null device kernels and streams
// do nothing, so only our own overhead remains; "cpu, queued" adds the cost of queuing closures to
// three stream threads.
//
// Traffic: copies by cause, bytes sent and peak bytes of one rank per step, for the bundled
// transformer with 25.6 million elements in a world of 2 (4 ranks for two axes, or where a row says
// so), on the null device: the byte counts are those of a real run. Offload needs a host with data,
// so it runs on the CPU, which then is both host and device.
#include <fmt/format.h>
#include <time.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/transports/process_group_fake.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tools/bench/bench_support.h"

namespace tessera {
namespace {

using distributed::DeviceMesh;

constexpr int kLayers = 64;
constexpr int kRounds = 300;
constexpr int kWarmUpRounds = 20;
constexpr std::int64_t kWidth = 8;

DeviceMesh fake_mesh(int size, Device device) {
  return {"data", distributed::make_fake_group("world", {.size = size}), device};
}
DeviceMesh fake_mesh(int replicas, int shards, Device device) {
  return {{"replicate", "shard"},
          {replicas, shards},
          distributed::make_fake_group("world", {.size = replicas * shards}),
          device};
}

// ---- host time ----------------------------------------------------------------------------------

struct HostTime {
  double clock = 0;  // microseconds
  double cpu = 0;
};

double cpu_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

template <class Body>
HostTime host_time(const Body& body) {
  const double cpu = cpu_microseconds();
  const double clock = microseconds(body);
  return {.clock = clock, .cpu = cpu_microseconds() - cpu};
}

// The medians over rounds, of each kind separately.
class HostTimes {
 public:
  void add(const HostTime& time) {
    clock_.push_back(time.clock / kLayers);
    cpu_.push_back(time.cpu / kLayers);
  }
  void print(const std::string& what) const {
    fmt::print("  {:40} {:6.2f} us, of the CPU {:6.2f} us\n", what, median(clock_), median(cpu_));
    std::fflush(stdout);
  }

 private:
  std::vector<double> clock_, cpu_;
};

// The host's time for a step; queued work is waited for afterwards.
class TimedChain {
 public:
  TimedChain(Device device, const std::function<void(nn::Module&)>& wrap)
      : x_(zeros({2, kWidth}, {.device = device})) {
    if (wrap) {
      for (const auto& layer : chain_.layers()) wrap(*layer);
      wrap(chain_);
    }
    nn::initialize(chain_, {.device = device});
    parameters_ = chain_.parameters();
  }
  HostTime step() {
    const HostTime took = host_time([&] {
      backward(sum(chain_(x_)));
      for (nn::Parameter& parameter : parameters_) parameter.zero_grad();
    });
    current_stream(x_.device()).synchronize();
    return took;
  }

 private:
  LinearChain chain_{kLayers, {.in = kWidth, .out = kWidth}};
  Variable x_;
  std::vector<nn::Parameter> parameters_;
};

void print_host_time(const std::string& what, Device device,
                     const std::function<void(nn::Module&)>& wrap) {
  TimedChain plain(device, nullptr);
  TimedChain sharded(device, wrap);
  HostTimes differences;
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    const HostTime without = plain.step();
    const HostTime with = sharded.step();
    if (round < 0) continue;
    differences.add({.clock = with.clock - without.clock, .cpu = with.cpu - without.cpu});
  }
  differences.print(what);
}

// Two gathers and a reduction of a layer's weight and bias, called directly.
void print_collectives() {
  const auto group = distributed::make_fake_group("world", {.size = 8});
  const auto rows = [](std::int64_t n) {
    return std::vector{zeros({n, kWidth}, {.device = kNull}), zeros({n}, {.device = kNull})};
  };
  const std::vector<Tensor> shard = rows(kWidth / 8), whole = rows(kWidth);
  HostTimes times;
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    const HostTime took = host_time([&] {
      for (int i = 0; i < kLayers; ++i) {
        distributed::all_gather(*group, shard, whole);
        distributed::all_gather(*group, shard, whole);
        distributed::reduce_scatter(*group, whole, shard);
      }
    });
    if (round >= 0) times.add(took);
  }
  times.print("collectives of fully_shard alone");
}

void measure_host_time() {
  fmt::print("---- host time per group and step, {} groups, median of {} pairs\n", kLayers,
             kRounds);
  const auto shard = [](const fsdp::FullyShardOptions& options) {
    return [options](nn::Module& module) { fsdp::fully_shard(module, options); };
  };
  const DeviceMesh mesh = fake_mesh(8, kNull);
  print_host_time("fully_shard", kNull, shard({.mesh = mesh}));
  for (const int ranks : {64, 512, 4096}) {
    print_host_time(fmt::format("fully_shard, {} ranks", ranks), kNull,
                    shard({.mesh = fake_mesh(ranks, kNull)}));
  }
  print_host_time("fully_shard, kept after forward", kNull,
                  shard({.mesh = mesh, .reshard_after_forward = false}));
  print_host_time("fully_shard, bf16 values", kNull,
                  shard({.mesh = mesh, .mixed_precision = {.param_dtype = DType::kBF16}}));
  print_host_time("fully_shard over two axes (HSDP)", kNull,
                  shard({.mesh = fake_mesh(2, 4, kNull)}));
  print_host_time("replicate", kNull,
                  [&](nn::Module& module) { fsdp::replicate(module, {.mesh = mesh}); });
  print_collectives();
  const StreamGuard compute(DeviceStream::create(kCpu, StreamKind::kQueued, "compute"));
  print_host_time("fully_shard on the cpu, queued", kCpu, shard({.mesh = fake_mesh(8, kCpu)}));
}

// ---- traffic ------------------------------------------------------------------------------------

struct Traffic {
  fsdp::CopyCounters copies;
  distributed::CollectiveCounters sent;
  MemoryReading peak;
  std::int64_t peak_model = 0, peak_total = 0;
};

fsdp::CopyCounters operator-(const fsdp::CopyCounters& a, const fsdp::CopyCounters& b) {
  return {.cast = a.cast - b.cast,
          .transfer = a.transfer - b.transfer,
          .transposed = a.transposed - b.transposed,
          .kept_part = a.kept_part - b.kept_part,
          .extension = a.extension - b.extension,
          .accumulated = a.accumulated - b.accumulated,
          .reduced = a.reduced - b.reduced};
}

// Traffic of the third step, when the order of groups is known.
Traffic traffic_of(Device device, const std::function<void(models::Transformer&)>& shard) {
  models::Transformer model(kBenchTransformer);
  shard(model);
  nn::initialize(model, {.device = device});
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  const Tensor tokens = zeros({1, 16}, {.dtype = DType::kI64, .device = device});
  MemoryCounters& memory = current_rank_context()->memory();
  Traffic out;
  for (int step = 0; step < 3; ++step) {
    const fsdp::CopyCounters copies = fsdp::of(model).copies();
    const distributed::CollectiveCounters sent = distributed::collective_counters();
    memory.reset_peak();
    backward(cross_entropy(model(tokens), tokens));
    optimizer.step();
    optimizer.zero_grad();
    const distributed::CollectiveCounters now = distributed::collective_counters();
    out = {.copies = fsdp::of(model).copies() - copies,
           .sent = {.collectives = now.collectives - sent.collectives,
                    .bytes_sent = now.bytes_sent - sent.bytes_sent},
           .peak = memory.peak(),
           .peak_model = memory.peak_model(),
           .peak_total = memory.peak_total()};
  }
  return out;
}

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

void print_traffic(const std::string& what, Device device,
                   const std::function<void(models::Transformer&)>& shard) {
  const Traffic t = traffic_of(device, shard);
  fmt::print(
      "{}\n  sent {:.2f} MB in {} collectives; peak {:.2f} MB of parameters, gradients and "
      "gathered values ({:.2f} gathered), {:.2f} MB in all\n  copied MB: {:.2f} cast, {:.2f} "
      "transfer, {:.2f} transposed, {:.2f} kept part, {:.2f} accumulated, {:.2f} reduced\n",
      what, megabytes(t.sent.bytes_sent), t.sent.collectives, megabytes(t.peak_model),
      megabytes(t.peak[MemoryCategory::kGathered]), megabytes(t.peak_total),
      megabytes(t.copies.cast), megabytes(t.copies.transfer), megabytes(t.copies.transposed),
      megabytes(t.copies.kept_part), megabytes(t.copies.accumulated), megabytes(t.copies.reduced));
}

void print_all_traffic(const std::string& dtypes, const fsdp::MixedPrecision& precision) {
  const DeviceMesh mesh = fake_mesh(2, kNull);
  const auto sharded = [&](fsdp::FullyShardOptions options) {
    options.mixed_precision = precision;
    return [options](models::Transformer& model) { shard_transformer(model, options); };
  };
  print_traffic("fully_shard, " + dtypes, kNull, sharded({.mesh = mesh}));
  print_traffic("fully_shard, kept after forward, " + dtypes, kNull,
                sharded({.mesh = mesh, .reshard_after_forward = false}));
  print_traffic("fully_shard, 1/2 of 4 kept, " + dtypes, kNull,
                sharded({.mesh = fake_mesh(4, kNull), .reshard_after_forward = 2}));
  print_traffic("fully_shard, offloaded, " + dtypes, kCpu,
                sharded({.mesh = fake_mesh(2, kCpu), .offload = fsdp::CpuOffload{}}));
  print_traffic("HSDP 2 x 2, " + dtypes, kNull, sharded({.mesh = fake_mesh(2, 2, kNull)}));
  print_traffic("replicate, " + dtypes, kNull, [&](models::Transformer& model) {
    const fsdp::ReplicateOptions options = {.mesh = mesh, .mixed_precision = precision};
    for (models::TransformerBlock& block : model.blocks()) fsdp::replicate(block, options);
    fsdp::replicate(model, options);
  });
}

}  // namespace
}  // namespace tessera

int main() {
  using namespace tessera;
  const RankScope scope(std::make_shared<RankContext>(0, 8, 1));
  measure_host_time();
  fmt::print("---- traffic of one rank per step\n");
  print_all_traffic("f32", {});
  print_all_traffic("bf16 values and gradients", {.param_dtype = DType::kBF16});
  print_all_traffic("bf16 values, f32 gradients",
                    {.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32});
  return 0;
}
