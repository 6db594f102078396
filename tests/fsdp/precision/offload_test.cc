// CPU offload: the same bits as without, counts of transfers, and on the null device parameters on
// the host and gathered memory on the device.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/distributed/transports/process_group_fake.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

struct Case {
  std::string name;
  fsdp::MixedPrecision mixed = {};
  DType stored = DType::kF64;
  fsdp::ReshardAfterForward reshard = {};
  bool replicate = false;
  bool over_replicas = false;
  int micro_batches = 1;
  bool sync_each = false;
  bool clip = false;
};

std::vector<nn::Module*> groups_of(Chain& chain) {
  std::vector<nn::Module*> groups;
  for (const auto& block : chain.blocks()) groups.push_back(block.get());
  groups.push_back(&chain);
  return groups;
}

void split(Chain& chain, const Case& c, const DeviceMesh& mesh,
           std::optional<fsdp::CpuOffload> offload) {
  for (nn::Module* module : groups_of(chain)) {
    if (c.replicate) {
      fsdp::replicate(*module, {.mesh = mesh, .mixed_precision = c.mixed, .offload = offload});
    } else {
      fsdp::fully_shard(*module, {.mesh = mesh,
                                  .reshard_after_forward = c.reshard,
                                  .mixed_precision = c.mixed,
                                  .offload = offload,
                                  .shard_optimizer_over_replicas = c.over_replicas});
    }
  }
  nn::initialize(chain, {.seed = 3});
}

/// Checks that both models have equal bits, all of them on the CPU.
void check_equal_bits(RankTest& t, const Chain& offloaded, const Chain& plain,
                      const std::string& what) {
  const auto left = offloaded.named_parameters(), right = plain.named_parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const nn::Parameter &a = left[i].parameter, &b = right[i].parameter;
    t.check_equal(a.local().tensor(), b.local().tensor(), what + " " + left[i].name);
    t.check(a.grad().defined() == b.grad().defined(), "{}: {} has a gradient?", what, left[i].name);
    if (!a.grad().defined() || !b.grad().defined()) continue;
    t.check_equal(a.grad(), b.grad(), what + " gradient of " + left[i].name);
    t.check(a.grad().device().is_cpu() && a.local().device().is_cpu(), "{}: elsewhere", what);
  }
}

void step(RankTest& t, const Case& c, Chain& chain, std::uint64_t number) {
  for (int micro = 0; micro < c.micro_batches; ++micro) {
    fsdp::of(chain).set_requires_gradient_sync(c.sync_each || micro + 1 == c.micro_batches);
    const Tensor x = random_rows(11, 7, c.stored, 10 * number + static_cast<std::uint64_t>(micro));
    backward(row_loss(chain(Variable(my_rows(x, t.world())))));
  }
  if (c.clip) nn::clip_grad_norm(chain.parameters(), 0.1);
}

void train(RankTest& t, const Case& c, const DeviceMesh& mesh) {
  const ChainOptions widths = {.stem = true, .dtype = c.stored};
  Chain offloaded(widths), plain(widths);
  split(offloaded, c, mesh, fsdp::CpuOffload{});
  split(plain, c, mesh, std::nullopt);
  nn::optim::SGD offloaded_sgd(offloaded.parameters(), kSgd);
  nn::optim::SGD plain_sgd(plain.parameters(), kSgd);
  std::vector<std::int64_t> transferred = {0};
  for (std::uint64_t number = 0; number < 3; ++number) {
    step(t, c, offloaded, number);
    step(t, c, plain, number);
    check_equal_bits(t, offloaded, plain, fmt::format("{}, step {}:", c.name, number));
    offloaded_sgd.step();
    plain_sgd.step();
    offloaded_sgd.zero_grad();
    plain_sgd.zero_grad();
    transferred.push_back(fsdp::of(offloaded).copies().transfer);
  }
  check_equal_bits(t, offloaded, plain, c.name + ", at the end:");
  t.check(fsdp::of(plain).copies().transfer == 0, "{}: {} bytes were moved without offload", c.name,
          fsdp::of(plain).copies().transfer);
  t.check(transferred[1] > 0 && transferred[3] - transferred[2] == transferred[2] - transferred[1],
          "{}: transfers of {}, {} and {} bytes", c.name, transferred[1], transferred[2],
          transferred[3]);
}

TESSERA_RANK_TEST("offload: the bits of a model that is not", "[fsdp]") {
  const DeviceMesh& mesh = t.world().mesh();
  for (const bool replicate : {false, true}) {
    train(t, {.name = "plain", .replicate = replicate}, mesh);
    train(t, {.name = "clipped", .replicate = replicate, .clip = true}, mesh);
    train(t,
          {.name = "each reduced", .replicate = replicate, .micro_batches = 3, .sync_each = true},
          mesh);
    train(t, {.name = "reduced once", .replicate = replicate, .micro_batches = 3}, mesh);
    train(t,
          {.name = "bf16",
           .mixed = {.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32},
           .stored = DType::kF32,
           .replicate = replicate,
           .micro_batches = 2,
           .sync_each = true},
          mesh);
  }
  train(t, {.name = "kept", .reshard = false}, mesh);
  train(t,
        {.name = "gradients kept low",
         .mixed = {.param_dtype = DType::kBF16, .keep_low_precision_gradients = true},
         .stored = DType::kF32},
        mesh);
}

TESSERA_RANK_TEST_WITH("offload: the bits of a model that is not, with queued compute", "[fsdp]",
                       {.cpu_compute = StreamKind::kQueued}) {
  for (const bool replicate : {false, true}) {
    train(t, {.name = "queued", .replicate = replicate, .micro_batches = 2, .sync_each = true},
          t.world().mesh());
  }
}

TESSERA_RANK_TEST_WITH("offload: hybrid sharding", "[fsdp]", {.worlds = {4}}) {
  const DeviceMesh mesh({"replica", "shard"}, {2, 2}, t.world().group(), t.world().device());
  for (const bool over_replicas : {false, true}) {
    train(t, {.name = "hybrid", .over_replicas = over_replicas}, mesh);
    train(t,
          {.name = "hybrid, bf16, accumulated and clipped",
           .mixed = {.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32},
           .stored = DType::kF32,
           .over_replicas = over_replicas,
           .micro_batches = 2,
           .clip = true},
          mesh);
  }
}

TESSERA_RANK_TEST("offload: the optimizer may step in backward, on complete gradients", "[fsdp]") {
  for (const bool replicate : {false, true}) {
    const Case c = {.name = "in backward", .replicate = replicate};
    Chain offloaded({.stem = true}), plain({.stem = true});
    split(offloaded, c, t.world().mesh(), fsdp::CpuOffload{.pin_memory = false});
    split(plain, c, t.world().mesh(), std::nullopt);
    nn::optim::SGD offloaded_sgd(offloaded.parameters(), kSgd), plain_sgd(plain.parameters(), kSgd);
    const nn::optim::StepInBackward in_backward(offloaded_sgd);
    for (std::uint64_t number = 0; number < 3; ++number) {
      step(t, c, offloaded, number);
      step(t, c, plain, number);
      plain_sgd.step();
      plain_sgd.zero_grad();
      check_equal_bits(t, offloaded, plain, fmt::format("step {}:", number));
    }
  }
}

TESSERA_RANK_TEST("offload: what a step transfers is the shard there and the gradient back",
                  "[fsdp]") {
  constexpr std::int64_t kIn = 6, kOut = 7;
  nn::Linear layer({.in = kIn, .out = kOut, .dtype = DType::kF64});
  fsdp::fully_shard(layer, {.mesh = t.world().mesh(), .offload = fsdp::CpuOffload{}});
  nn::initialize(layer, {.seed = 3});
  const distributed::Chunk chunk = distributed::chunk_of(kOut, t.size(), t.rank());
  const std::int64_t row_bytes = 8 * (kIn + 1);  // of weight and bias
  for (std::int64_t step = 1; step <= 3; ++step) {
    layer.weight().zero_grad();
    layer.bias().zero_grad();
    backward(row_loss(layer(Variable(random_rows(2, kIn, DType::kF64, 1)))));
    const std::int64_t expected = step * row_bytes * (chunk.padded_rows + chunk.rows());
    t.check(fsdp::of(layer).copies().transfer == expected, "step {}: {} bytes, expected {}", step,
            fsdp::of(layer).copies().transfer, expected);
    t.check(fsdp::of(layer).copies().total() == expected, "{} bytes in all",
            fsdp::of(layer).copies().total());
  }
}

TEST_CASE("offload: on a device without values, parameters are on the host and gathers there") {
  const auto group = distributed::make_fake_group("world", {.rank = 1, .size = 4});
  const DeviceMesh mesh("data", group, kNull);
  for (const bool offload : {false, true}) {
    Chain chain({.stem = true});
    std::optional<fsdp::CpuOffload> option;
    if (offload) option.emplace();
    for (nn::Module* module : groups_of(chain))
      fsdp::fully_shard(*module, {.mesh = mesh, .offload = option});
    std::vector<Device> value_devices;
    const nn::Parameter first = chain.blocks()[0]->parameters().front();
    chain.blocks()[0]->register_forward_pre_hook([&](nn::Module&, const nn::VisitVariables&) {
      value_devices.push_back(first.value().device());
    });
    nn::initialize(chain, {.seed = 3, .device = kNull});
    MemoryCounters& memory = current_rank_context()->memory();
    memory.reset_peak();
    // On the CPU: the root moves its arguments to the device.
    const Variable x(zeros({3, 7}, {.dtype = DType::kF64}));
    backward(row_loss(chain(x)));
    CHECK(value_devices == std::vector<Device>{kNull});
    CHECK(memory.peak()[MemoryCategory::kGathered] > 0);
    CHECK(memory.current()[MemoryCategory::kGathered] == 0);
    for (const nn::NamedParameter& named : chain.named_parameters()) {
      INFO(named.name);
      CHECK(named.parameter.local().device() == (offload ? kCpu : kNull));
      REQUIRE(named.parameter.grad().defined());
      CHECK(named.parameter.grad().device() == (offload ? kCpu : kNull));
    }
    CHECK((fsdp::of(chain).copies().transfer > 0) == offload);
    nn::optim::SGD sgd(chain.parameters(), kSgd);
    sgd.step();
  }
}

TEST_CASE("offload: shards that lie elsewhere are named before anything runs") {
  const auto group = distributed::make_fake_group("world", {.rank = 0, .size = 2});
  Chain chain({});
  fsdp::fully_shard(chain, {.mesh = DeviceMesh("data", group, kCpu)});
  nn::initialize(chain, {.seed = 3, .device = kNull});
  const Variable x(zeros({3, 7}, {.dtype = DType::kF64}));
  CHECK_THROWS_WITH(chain(x), Catch::Contains("\"block0.linear.weight\" of group root lies on "
                                              "null; its shards live on cpu"));
}

}  // namespace
}  // namespace tessera::testing
