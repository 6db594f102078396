// The mesh determines the device. The root alone moves inputs, models and buffers from the CPU to
// it; errors name parameters on other devices. If the mesh is on the CPU, nothing is moved, so the
// moves are also tested on a mesh of the null device, and the other device is the null device.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/distributed/transports/process_group_fake.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/support/models/mlp.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kWidth = 7;

void shard_or_replicate(RankTest& t, nn::Module& module, bool replicate) {
  if (replicate) {
    fsdp::replicate(module, {.mesh = t.world().mesh()});
  } else {
    fsdp::fully_shard(module, {.mesh = t.world().mesh()});
  }
}

std::unique_ptr<Chain> sharded_chain(RankTest& t, bool replicate) {
  auto chain = std::make_unique<Chain>(ChainOptions{});
  for (const auto& block : chain->blocks()) shard_or_replicate(t, *block, replicate);
  shard_or_replicate(t, *chain, replicate);
  nn::initialize(*chain, {.seed = 3});
  return chain;
}

/// A device on which a model for `device` must not be.
Device elsewhere_than(Device device) { return device.is_cpu() ? kNull : kCpu; }

/// Rows on the CPU: a leaf that requires a gradient.
Variable cpu_rows(std::uint64_t seed) {
  return Variable(to_device(random_rows(5, kWidth, DType::kF64, seed), kCpu), true);
}

/// Checks that values and gradients are on `device`.
void check_devices(RankTest& t, const nn::Module& model, Device device, const std::string& what) {
  for (const nn::NamedParameter& named : model.named_parameters()) {
    const nn::Parameter& parameter = named.parameter;
    t.check(parameter.local().device() == device, "{}: {} lies on {}", what, named.name,
            parameter.local().device().str());
    t.check(!parameter.grad().defined() || parameter.grad().device() == device,
            "{}: the gradient of {} lies elsewhere", what, named.name);
  }
}

// ---- inputs -------------------------------------------------------------------------------------

TESSERA_RANK_TEST("places: an input comes from the CPU, its gradient goes back there", "[fsdp]") {
  const Device device = t.world().device();
  for (const bool replicate : {false, true}) {
    const auto model = sharded_chain(t, replicate), reference = sharded_chain(t, replicate);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Variable x = cpu_rows(step);
      const Variable there(to_device(x.tensor(), device), true);
      const Variable y = (*model)(x), expected = (*reference)(there);
      t.check(y.device() == device, "the result lies on {}", y.device().str());
      t.check_equal(y.tensor(), expected.tensor(), "the result");
      backward(half_squares(y, 5));
      backward(half_squares(expected, 5));
      if (!t.check(x.grad().defined(), "the input has no gradient")) return;
      t.check(x.grad().device() == kCpu, "the input's gradient lies on {}",
              x.grad().device().str());
      t.check(largest(x.grad()) > 0, "the input's gradient is zero");
      t.check_equal(to_device(x.grad(), device), there.grad(), "the input's gradient");
      check_devices(t, *model, device, "after backward");
      const auto mine = model->parameters(), others = reference->parameters();
      for (std::size_t i = 0; i < mine.size(); ++i)
        t.check_equal(mine[i].grad(), others[i].grad(), mine[i].name());
    }
  }
}

/// A pair of inputs, one of integers: inputs without gradients are moved, too.
class Picked final : public nn::Layer<Picked> {
 public:
  Picked() : block_(kWidth, 3, DType::kF64) { register_module("block", block_); }
  Variable forward(const std::vector<Variable>& x) {
    devices = {x.at(0).device(), x.at(1).device()};
    return block_(index_select(x.at(0), 0, x.at(1).tensor()));
  }
  std::vector<Device> devices;

 private:
  Block block_;
};

TESSERA_RANK_TEST("places: all Variables of a container are brought along", "[fsdp]") {
  const Device device = t.world().device();
  Picked model;
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  const Variable x = cpu_rows(1);
  const Variable rows(to_device(Tensor::from_vector<std::int64_t>({4, 0, 4}, {3}), kCpu));
  const Variable y = model(std::vector{x, rows});
  t.check(model.devices == std::vector{device, device}, "the inputs lie on {} and {}",
          model.devices.at(0).str(), model.devices.at(1).str());
  backward(sum(y));
  const std::vector<double> grad = x.grad().to_vector<double>();
  for (std::size_t row = 0; row < 5; ++row) {
    const bool picked = row == 0 || row == 4;
    t.check((grad.at(row * kWidth) != 0) == picked, "the gradient of row {} is {}", row,
            grad.at(row * kWidth));
  }
  t.check(x.tensor().device() == kCpu && rows.device() == kCpu, "the caller's own were moved");
}

/// Of three ranks. Tensors of the null device have no elements, so there is no way back: forward
/// only.
distributed::DeviceMesh null_mesh() {
  return {"data", distributed::make_fake_group("plan", {.rank = 1, .size = 3}), kNull};
}

TEST_CASE("places: all Variables of a container are brought to the null device", "[fsdp]") {
  Picked model;
  fsdp::fully_shard(model, {.mesh = null_mesh()});
  nn::initialize(model, {.seed = 3, .device = kNull});
  const Variable rows(to_device(Tensor::from_vector<std::int64_t>({4, 0, 4}, {3}), kCpu));
  const Variable y = model(std::vector{cpu_rows(1), rows});
  CHECK(model.devices == std::vector{kNull, kNull});
  CHECK(y.device() == kNull);
}

// Copies between devices are counted: one for the batch, none between the layers.
TESSERA_RANK_TEST("places: only the root brings inputs", "[fsdp]") {
  const Device device = t.world().device();
  const auto model = sharded_chain(t, /*replicate=*/false);
  Device elsewhere = elsewhere_than(device);
  // In front of the sharded module's own hook, which is to leave it so.
  model->blocks()[1]->register_forward_pre_hook(
      [&elsewhere](nn::Module&, const nn::VisitVariables& arguments) {
        arguments([&](Variable& x) { x = Variable(to_device(x.tensor(), elsewhere)); });
      },
      {.first = true});
  const Variable x = cpu_rows(1);
  t.check_throws<InvalidArgument>("move them to one device", [&] { (*model)(x); });
  elsewhere = device;
  fsdp::of(*model).reset_iter_state();
  t.check((*model)(x).device() == device, "the result lies elsewhere");
}

// ---- models and buffers -------------------------------------------------------------------------

std::unique_ptr<MLP> mlp() {
  return std::make_unique<MLP>(
      MLPOptions{.dim = kWidth, .with_buffer = true, .dtype = DType::kF64});
}

TESSERA_RANK_TEST("places: a model that lies on the CPU goes to the mesh's device", "[fsdp]") {
  const Device device = t.world().device();
  for (const bool replicate : {false, true}) {
    const auto model = mlp(), reference = mlp();
    nn::initialize(*model, {.seed = 3, .device = kCpu});
    nn::initialize(*reference, {.seed = 3, .device = device});
    const Tensor before = model->named_buffers().front().buffer.tensor();
    t.check(before.device() == kCpu, "the model began on {}", before.device().str());
    shard_or_replicate(t, *model, replicate);
    check_devices(t, *model, device, "sharded");
    const Tensor buffer = model->named_buffers().front().buffer.tensor();
    t.check(buffer.device() == device, "the buffer lies on {}", buffer.device().str());
    t.check_equal(buffer, reference->named_buffers().front().buffer.tensor(), "the buffer");
    train_side_by_side(t, over_rows(replicate ? "replicated" : "sharded", *model, *reference,
                                    {.width = kWidth, .ranks = data_rank(t.group())}));
  }
}

TEST_CASE("places: a model and its buffer that lie on the CPU go to the null device", "[fsdp]") {
  for (const bool replicate : {false, true}) {
    const auto model = mlp();
    nn::initialize(*model, {.seed = 3, .device = kCpu});
    if (replicate) {
      fsdp::replicate(*model, {.mesh = null_mesh()});
    } else {
      fsdp::fully_shard(*model, {.mesh = null_mesh()});
    }
    for (const nn::NamedParameter& named : model->named_parameters())
      CHECK(named.parameter.local().device() == kNull);
    CHECK(model->named_buffers().front().buffer.tensor().device() == kNull);
    CHECK((*model)(cpu_rows(1)).device() == kNull);
  }
}

// A buffer without values gets them where initialize() places it.
TESSERA_RANK_TEST("places: a buffer without values is left alone", "[fsdp]") {
  const auto model = mlp();
  fsdp::fully_shard(*model, {.mesh = t.world().mesh()});
  t.check(!model->named_buffers().front().buffer.is_materialized(), "the buffer has values");
  nn::initialize(*model, {.seed = 3});
  const Device found = model->named_buffers().front().buffer.tensor().device();
  t.check(found == t.world().device(), "the buffer lies on {}", found.str());
}

// ---- models moved afterwards --------------------------------------------------------------------

TESSERA_RANK_TEST("places: a sharded model that was moved off its mesh's device is named",
                  "[fsdp]") {
  const Device device = t.world().device(), elsewhere = elsewhere_than(device);
  const Variable x = cpu_rows(1);
  for (const bool trained : {false, true}) {
    const RankTest::NamedCase named(t, trained ? "after a step" : "before the first step");
    const auto model = sharded_chain(t, /*replicate=*/false);
    if (trained) backward(half_squares((*model)(x), 5));
    model->to(elsewhere);
    check_devices(t, *model, elsewhere, "moved");
    t.check_throws<StateError>(
        fmt::format("of group root lies on {}; its shards live on {}: initialise or move it there",
                    elsewhere.str(), device.str()),
        [&] { (*model)(x); });
    if (elsewhere.is_null()) continue;  // values cannot come back from the null device
    model->to(device);
    backward(half_squares((*model)(x), 5));
    check_devices(t, *model, device, "moved back");
  }
}

// Offloaded shards always stay on the CPU: moving the model is not an error and leaves them there.
TESSERA_RANK_TEST("places: an offloaded model that is moved anywhere stays on the CPU", "[fsdp]") {
  const Device device = t.world().device();
  Chain model({}), reference({});
  for (nn::Module* module : std::vector<nn::Module*>{model.blocks()[0].get(), &model}) {
    fsdp::fully_shard(*module, {.mesh = t.world().mesh(), .offload = fsdp::CpuOffload{}});
  }
  initialize_both(model, reference);
  reference.to(kCpu);  // beside parameters that are there
  for (const Device to : {device, elsewhere_than(device)}) {
    model.to(to);
    check_devices(t, model, kCpu, "moved to " + to.str());
  }
  const std::string start = first_difference(model, reference, 0, /*gradients=*/false);
  t.check(start.empty(), "moved: {}", start);
  const RowBatch batch = {.width = kWidth, .ranks = data_rank(t.group())};
  const Variable y = model(batch.mine(0, 0));
  t.check(y.device() == device, "it computes on {}", y.device().str());
  backward(half_squares(y, batch.rows, t.size()));
  check_devices(t, model, kCpu, "after backward");
  backward(half_squares(reference(Variable(to_device(batch.all(0, 0), kCpu))), batch.rows));
  const std::string difference = first_difference(model, reference, 1e-12);
  t.check(difference.empty(), "{}", difference);
}

}  // namespace
}  // namespace tessera::testing
