// The sharded state dict: nn::state_dict of a sharded model returns every rank's local(), without
// communication and without copies. Also that shards are initialised to the unsharded model's bits.
#include <catch2/catch.hpp>

#include <functional>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

using Options = fsdp::FullyShardOptions;

// Calls `body` with a sharded, a replicated and a mixed model, and over two axes if the world
// allows.
void for_each_sharding(RankTest& t, const std::function<void(StateNet& net)>& body,
                       const Options& base = {}) {
  const auto run = [&](const distributed::DeviceMesh& mesh, Sharded how) {
    Options options = base;
    options.mesh = mesh;
    StateNet net;
    shard_net(net, options, how);
    nn::initialize(net, {.seed = 3});
    body(net);
  };
  for (const Sharded how : {Sharded::kFully, Sharded::kReplicated, Sharded::kMixed})
    run(t.world().mesh(), how);
  if (t.size() % 2 == 0) run(distributed::hybrid_mesh(t.world(), t.size() / 2), Sharded::kFully);
}

std::vector<std::string> names_of(const nn::StateDict& state) {
  std::vector<std::string> out;
  for (const auto& [name, value] : state) out.push_back(name);
  return out;
}

TESSERA_RANK_TEST_WITH("shards are initialised to the unsharded model's bits", "[fsdp][state]",
                       {.worlds = {1, 2, 3, 4, 5}}) {
  StateNet plain;
  nn::initialize(plain, {.seed = 3});
  for_each_sharding(t, [&](StateNet& net) {
    for (std::size_t i = 0; i < net.parameters().size(); ++i) {
      const nn::Parameter parameter = net.parameters()[i];
      t.check_equal(parameter.local().tensor(),
                    box_rows(plain.parameters()[i].local().tensor(), parameter), parameter.name());
    }
    t.check_equal(net.scale().tensor(), plain.scale().tensor(), "scale");
    t.check_equal(net.table().tensor(), plain.table().tensor(), "table");
  });
}

TESSERA_RANK_TEST_WITH("a full state is written a tensor at a time, as the bytes of the whole",
                       "[fsdp][state]", {.worlds = {1, 2, 3, 4, 5}}) {
  std::string folder;
  if (t.rank() == 0) folder = temporary_path(fmt::format("full_{}", t.size()), "");
  folder = t.gather_text(folder).front();
  for_each_sharding(t, [&](StateNet& net) {
    const std::string path = folder + "streamed.safetensors", other = folder + "whole.safetensors";
    fsdp::save_full_state(path, net, t.world().mesh());
    const nn::StateDict whole = fsdp::full_state_dict(net, {.mesh = t.world().mesh()});
    if (t.rank() == 0) {
      nn::save_state(other, whole);
      t.check(read_bytes(path) == read_bytes(other), "other bytes");
    }
    // All ranks have the error of the first, and go on.
    t.check_throws<CheckpointError>("none", [&] {
      fsdp::save_full_state(folder + "none/a.safetensors", net, t.world().mesh());
    });
  });
}

TESSERA_RANK_TEST_WITH("the state dict of a sharded model is its shards themselves",
                       "[fsdp][state]", {.worlds = {1, 2, 3, 4, 5}}) {
  StateNet plain;
  nn::initialize(plain, {.seed = 3});
  for_each_sharding(t, [&](StateNet& net) {
    const auto before = distributed::collective_counters();
    const nn::StateDict state = nn::state_dict(net);
    t.check(distributed::collective_counters().collectives == before.collectives,
            "a state dict communicates");
    t.check(names_of(state) == names_of(nn::state_dict(plain)), "names: {}",
            fmt::join(names_of(state), " "));
    for (const auto& [name, parameter] : net.named_parameters()) {
      const Tensor& shown = state.tensor(name);
      t.check(shown.storage() == parameter.local().tensor().storage(), "{} is a copy", name);
      t.check(shown.shape() == parameter.local().shape(), "{} has shape {}", name,
              shown.shape().str());
    }
  });
}

// The obvious call on every rank would leave the part of the rank that wrote last.
TESSERA_RANK_TEST_WITH("a file takes full states only, and a load says which of the two it got",
                       "[fsdp][state]", {.worlds = {1, 2, 3, 5}}) {
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  nn::optim::SGD sgd(net.parameters(), kSgd);
  train(net, sgd, 1, 0);
  const nn::StateDict parts = nn::state_dict(net), states = sgd.state_dict();
  const std::string path = "/nowhere/state.safetensors";
  if (t.size() == 1) {  // what is sharded over one rank is whole
    t.check_throws<CheckpointError>("/nowhere", [&] { nn::save_state(path, parts); });
    t.check_throws<CheckpointError>("/nowhere", [&] { nn::save_state(path, states); });
    return;
  }
  for (const nn::StateDict* state : {&parts, &states})
    t.check_throws<InvalidArgument>("call fsdp::full_state_dict(model)",
                                    [&] { nn::save_state(path, *state); });
  for (const auto& [name, value] : parts) {
    const nn::ShardSpec* part = parts.part_of(name);
    const bool is_buffer = name == "scale" || name == "table" || name == "calls";
    t.check((part == nullptr) == is_buffer, "{} is marked wrongly", name);
    if (part != nullptr)
      t.check(part->global_shape == nn::state_dict(plain).tensor(name).shape(), "{} is part of {}",
              name, part->global_shape.str());
  }
  t.check_throws<InvalidArgument>("(one rank's part of ",
                                  [&] { nn::load_state_dict(plain, parts); });
  t.check_throws<InvalidArgument>(": load full states with fsdp::load_full_state_dict)",
                                  [&] { nn::load_state_dict(net, nn::state_dict(plain)); });
  const nn::StateDict full = fsdp::full_state_dict(net, {.rank0_only = false});
  t.check_throws<CheckpointError>("/nowhere", [&] { nn::save_state(path, full); });
  nn::load_state_dict(plain, full);
}

TESSERA_RANK_TEST_WITH("batch norms that trained with local batches are named when saved",
                       "[fsdp][state]", {.worlds = {2, 3}}) {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 3, .out = 4});
  net.add<nn::BatchNorm1d>({.channels = 4});
  fsdp::fully_shard(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 1});
  t.check(fsdp::local_batch_norm_warning(net).empty(), "a warning before training");
  const Variable x(random_rows(5, 3, DType::kF32, 1));
  net(x);
  const std::string text = fsdp::local_batch_norm_warning(net);
  t.check(text.find("1 batch norm(s), \"1\" the first, trained with") != std::string::npos,
          "the warning is: {}", text);
  nn::synchronize_batch_norms(net, distributed::make_mesh(t.world().mesh()));
  dynamic_cast<nn::BatchNorm1d&>(*net.children()[1].module).reset_running_stats();
  net(x);
  t.check(fsdp::local_batch_norm_warning(net).empty(), "a warning though synchronized");
}

TESSERA_RANK_TEST_WITH("a load in place is seen at once and keeps the storage", "[fsdp][state]",
                       {.worlds = {1, 2, 3, 4, 5}}) {
  for_each_sharding(t, [&](StateNet& net) {
    const nn::StateDict before = nn::state_dict(net);
    nn::StateDict other = before.clone();
    for (const auto& [name, value] : other) {
      const Tensor& tensor = std::get<Tensor>(value);
      if (is_floating(tensor.dtype())) fill_(tensor, 42 + t.rank());
    }
    nn::load_state_dict(net, other);
    for (const auto& [name, parameter] : net.named_parameters()) {
      const Tensor& local = parameter.local().tensor();
      t.check(local.storage() == before.tensor(name).storage(), "{} moved", name);
      t.check_equal(local, full_like(local, 42 + t.rank()), name);
    }
  });
}

// A state dict contains the shards, even while values are kept or unsharded by hand.
TESSERA_RANK_TEST_WITH("a state dict after forward is that of before", "[fsdp][state]",
                       {.worlds = {1, 2, 3, 4, 5}}) {
  Options keeps;
  keeps.reshard_after_forward = false;
  for_each_sharding(
      t,
      [&](StateNet& net) {
        const nn::StateDict before = nn::state_dict(net).clone();
        const Variable y = net(Variable(random_rows(3, 7, DType::kF64, 1)));
        check_same_state(t, nn::state_dict(net), before, "after forward");
        t.check(fsdp::of(net.inner()).state() == fsdp::GroupState::kFull, "values were not kept");
        backward(sum(y));
        check_same_state(t, nn::state_dict(net), before, "after backward");
        fsdp::of(net).unshard();
        check_same_state(t, nn::state_dict(net), before, "unsharded by hand");
        fsdp::of(net).reshard();
      },
      keeps);
}

TESSERA_RANK_TEST_WITH("a state dict taken once goes on to show the model", "[fsdp][state]",
                       {.worlds = {1, 2, 3, 4, 5}}) {
  for_each_sharding(t, [&](StateNet& net) {
    const nn::StateDict state = nn::state_dict(net), start = state.clone();
    nn::optim::SGD sgd(net.parameters(), kSgd);
    for (int step = 0; step < 5; ++step) {
      train(net, sgd, 1, step);
      check_same_state(t, state, nn::state_dict(net), "after a step");
    }
    const Tensor bias = state.tensor("first.bias");
    const bool moved = bias.numel() == 0 || !all_equal(bias, start.tensor("first.bias")).ok;
    t.check(moved, "the model did not train");
    // A conversion makes new tensors: the dict keeps the old ones.
    net.to(DType::kF32);
    t.check(state.tensor("first.bias").dtype() == DType::kF64 &&
                net.parameters().front().dtype() == DType::kF32,
            "the dict follows a conversion");
  });
}

TESSERA_RANK_TEST("buffers are saved in their own dtype, whatever they compute in",
                  "[fsdp][state]") {
  StateNet net(DType::kF32);
  shard_net(net, {.mesh = t.world().mesh(),
                  .mixed_precision = {.param_dtype = DType::kBF16, .buffer_dtype = DType::kBF16}});
  nn::initialize(net, {.seed = 3});
  nn::StateDict state = nn::state_dict(net).clone();
  t.check(net.scale().dtype() == DType::kBF16, "scale computes in {}",
          dtype_name(net.scale().dtype()));
  t.check(state.tensor("scale").dtype() == DType::kF32, "scale is saved in {}",
          dtype_name(state.tensor("scale").dtype()));
  t.check(state.tensor("calls").dtype() == DType::kI64, "calls is saved in {}",
          dtype_name(state.tensor("calls").dtype()));
  fill_(state.tensor("scale"), 1.5);
  nn::load_state_dict(net, state);
  t.check_equal(net.scale().tensor(), full({5}, 1.5, {.dtype = DType::kBF16}), "loaded");
}

// Shards on the host stay there, whatever they are loaded from.
TESSERA_RANK_TEST("the state dict of an offloaded model is on the CPU, and loads in pieces",
                  "[fsdp][state]") {
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh(), .offload = fsdp::CpuOffload{}});
  shard_net(plain, {.mesh = t.world().mesh()});
  nn::initialize(plain, {.seed = 3});
  const nn::StateDict whole = nn::state_dict(plain);
  for (const auto& [name, value] : whole) {
    nn::StateDict piece;
    piece.set(name, value);
    nn::load_state_dict(net, piece, {.strict = false, .seed = 3});
  }
  check_same_state(t, nn::state_dict(net), whole, "loaded in pieces");
  for (const auto& [name, parameter] : net.named_parameters()) {
    t.check(parameter.local().device() == kCpu, "{} is on {}", name,
            parameter.local().device().str());
  }
  const Variable x(random_rows(3, 7, DType::kF64, 1));
  t.check_equal(net(x).tensor(), plain(x).tensor(), "forward");
}

}  // namespace
}  // namespace tessera::testing
