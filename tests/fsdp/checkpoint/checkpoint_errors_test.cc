// What saves and loads refuse, and that nothing has changed then.

#include "tessera/fsdp/checkpoint/checkpoint.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/checkpoint/async_saver.h"
#include "tessera/fsdp/checkpoint/pending_save.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/ema.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/io/safetensors.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/checkpoint/checkpoint_run.h"
#include "tessera/tests/fsdp/state/state_model.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

TESSERA_RANK_TEST("nothing is replaced, and a save that fails leaves nothing", "[checkpoint]") {
  const std::string parent = shared_folder(t, "refused"), folder = parent + "/step-1";
  Run run(t);
  checkpoint::save(folder, run.state());
  t.check_throws<CheckpointError>("something is at \"" + folder + "\" already",
                                  [&] { checkpoint::save(folder, run.state()); });
  t.check(names_in(parent) == std::vector<std::string>{"step-1"}, "files are left");
  // A member that cannot be saved on one rank alone.
  StateNet never;
  checkpoint::State state = run.state();
  if (t.rank() == t.size() - 1) state.model = &never;
  t.check_throws<StateError>("buffer \"scale\" of shape [5] has no elements yet",
                             [&] { checkpoint::save(parent + "/step-2", state); });
  t.check(names_in(parent) == std::vector<std::string>{"step-1"}, "files are left");
}

TESSERA_RANK_TEST("a load that does not fit changes nothing", "[checkpoint]") {
  const std::string parent = shared_folder(t, "misfit"), folder = parent + "/step-1";
  Run run(t);
  train(run.net, run.optimizer, 1);
  checkpoint::State model_only = run.state();
  model_only.optimizer = nullptr;
  checkpoint::save(folder, model_only);

  Run other(t, 8);
  train(other.net, other.optimizer, 1);
  const nn::StateDict before = other.full();
  t.check_throws<InvalidArgument>("has no optimizer: it was saved without one",
                                  [&] { checkpoint::load(folder, other.state()); });
  t.check_throws<CheckpointError>("/step-2/index.json\": No such file or directory",
                                  [&] { checkpoint::load(parent + "/step-2", other.state()); });
  check_same_state(t, other.full(), before, "after refused loads");

  nn::Linear smaller({.in = 7, .out = 5, .dtype = DType::kF64});
  fsdp::fully_shard(smaller, {.mesh = t.world().mesh()});
  nn::initialize(smaller, {.seed = 1});
  const checkpoint::State small{.group = t.world().group(), .model = &smaller};
  t.check_throws<InvalidArgument>("\"weight\" (f64 [5, 7]) is missing",
                                  [&] { checkpoint::load(folder, small); });
  const nn::LoadReport report = checkpoint::load(folder, small, {.strict = false});
  t.check(report.missing.size() == 2 && report.unexpected.size() == 9, "{} and {} names",
          report.missing.size(), report.unexpected.size());
}

TESSERA_RANK_TEST(
    "the newest complete checkpoint is loaded, and a damaged one names the one before",
    "[checkpoint]") {
  const std::string parent = shared_folder(t, "newest");
  Run run(t), other(t, 8);
  t.check(!checkpoint::load_newest(parent, other.state()), "loaded nothing");
  for (int step = 1; step <= 2; ++step) {
    train(run.net, run.optimizer, 1, step);
    checkpoint::save(checkpoint::step_folder(parent, step), run.state());
  }
  t.check(checkpoint::load_newest(parent, other.state()) == parent + "/step-2", "another one");
  check_same_state(t, other.full(), run.full(), "of step 2");
  const std::string file = parent + "/step-2/rank-00000.safetensors";
  t.gather_text("");
  if (t.rank() == 0) {
    std::string bytes = read_bytes(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_bytes(file, bytes);
  }
  t.gather_text("");
  t.check_throws<CheckpointError>("; before it there is \"" + parent + "/step-1\"",
                                  [&] { checkpoint::load_newest(parent, other.state()); });
}

TESSERA_RANK_TEST("an optimizer of another kind is refused before the model changes",
                  "[checkpoint]") {
  const std::string folder = shared_folder(t, "kind") + "/step-1";
  Run run(t), other(t, 8);
  train(run.net, run.optimizer, 1);
  checkpoint::save(folder, run.state());
  const nn::StateDict before = other.full();
  nn::optim::AdamW adam(other.net.parameters(), {.lr = 0.1});
  checkpoint::State state = other.state();
  state.optimizer = &adam;
  t.check_throws<InvalidArgument>("it is the state of SGD, and this is AdamW",
                                  [&] { checkpoint::load(folder, state); });
  check_same_state(t, other.full(), before, "after a refused load");
  // Ranks that load different members would wait for each other.
  if (t.size() == 1) return;
  state = other.state();
  if (t.rank() == t.size() - 1) state.optimizer = nullptr;
  t.check_throws<InvalidArgument>("ranks give different members of the state",
                                  [&] { checkpoint::load(folder, state); });
  check_same_state(t, other.full(), before, "after ranks differ");
}

TESSERA_RANK_TEST("hooks may rename what is loaded, and a view of it is refused", "[checkpoint]") {
  const std::string folder = shared_folder(t, "hooks") + "/step-1";
  Run run(t), other(t, 8);
  checkpoint::save(folder, run.state());
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  const auto transposed = [&](nn::Module&, nn::StateDict& state, const std::string&) {
    state.set("first.weight", state.tensor("first.weight").transpose(0, 1));
  };
  net.state_dict_hooks().before_load.add(transposed);
  checkpoint::State state{.group = t.world().group(), .model = &net};
  t.check_throws<InvalidArgument>("\"first.weight\" is on the null device",
                                  [&] { checkpoint::load(folder, state); });
  // One tensor under another name.
  const auto renamed = [](nn::Module&, nn::StateDict& saved, const std::string&) {
    saved.set("tied.weight", saved.tensor("first.weight"));
    saved.erase("first.weight");
  };
  other.net.state_dict_hooks().before_load.add(renamed);
  state.model = &other.net;
  checkpoint::load(folder, state);
  check_same_state(t, fsdp::full_state_dict(other.net, {.rank0_only = false}),
                   fsdp::full_state_dict(run.net, {.rank0_only = false}), "renamed");
  // Both names of a tied weight: whether they agree is not known.
  StateNet third;
  shard_net(third, {.mesh = t.world().mesh()});
  third.state_dict_hooks().before_load.add(
      [](nn::Module&, nn::StateDict& saved, const std::string&) {
        saved.set("tied.weight", saved.tensor("first.weight"));
      });
  state.model = &third;
  t.check_throws<InvalidArgument>("are tied in the model and saved apart",
                                  [&] { checkpoint::load(folder, state); });
}

TESSERA_RANK_TEST("a file that cannot be written on one rank is every rank's error",
                  "[checkpoint]") {
  const std::string parent = shared_folder(t, "unwritable");
  Run run(t);
  {
    checkpoint::PendingSave pending(parent + "/step-1", run.state(), current_rank_context());
    t.gather_text("");
    if (t.rank() == 0) std::filesystem::remove_all(parent + "/" + names_in(parent).front());
    t.gather_text("");
    pending.write();
    t.check_throws<CheckpointError>("No such file or directory", [&] { pending.publish(); });
  }
  t.gather_text("");
  t.check(names_in(parent).empty(), "files are left");
}

TEST_CASE("a mark that does not describe its tensor is refused", "[checkpoint]") {
  const std::string folder = temporary_path("marks", "step-1");
  const auto refused = [&](const nn::ShardSpec& spec) {
    nn::StateDict values;
    values.set("w", full({4, 4}, 1));
    values.mark_part("w", spec);
    return thrown<InvalidArgument>([&] { checkpoint::save(folder, {.values = &values}); });
  };
  const auto part = [&](const Shape& offset, const Shape& extent) {
    return refused({.global_shape = {4, 8},
                    .boxes = {{.offset = offset, .extent = extent}},
                    .sharded_axes = {"data"}});
  };
  const std::string rows = "[checkpoint.save] \"values.w\" of shape [4, 4] is marked as a part of ";
  CHECK(part({0, 0}, {4, 8}) == rows + "[4, 8] that has shape [4, 8]");
  CHECK(part({0, 0}, {3, 4}) == rows + "[4, 8] that has shape [3, 4]");
  const std::string outside = " is not a part of [4, 8] as wide as the others";
  CHECK(part({0}, {4}) == "[nn.Parameter] \"values.w\": box [4] at [0]" + outside);
  CHECK(part({0, 5}, {4, 4}) == "[nn.Parameter] \"values.w\": box [4, 4] at [0, 5]" + outside);
  CHECK(part({-1, 0}, {4, 4}) == "[nn.Parameter] \"values.w\": box [4, 4] at [-1, 0]" + outside);
  CHECK(refused({.global_shape = {4, 8},
                 .boxes = {{.offset = {0, 0}, .extent = {4, 4}}},
                 .sharded_axes = {"data"}}) ==
        "[checkpoint.save] \"values.w\" of shape [4, 8] is not whole: its boxes have 16 of its 32 "
        "elements");
}

TESSERA_RANK_TEST_WITH("a flipped bit is found wherever it is, and no member changes",
                       "[checkpoint]", (RankTestOptions{.worlds = {1, 3}})) {
  const std::string folder = shared_folder(t, "flipped") + "/step-1";
  Run run(t);
  train(run.net, run.optimizer, 1);
  checkpoint::save(folder, run.state());
  Run other(t, 8);
  train(other.net, other.optimizer, 1);
  const nn::StateDict before = other.full();
  const std::vector<std::string> names = names_in(folder);
  for (int i = 0; i < 100; ++i) {
    const std::string path = folder + "/" + names[static_cast<std::size_t>(i) % names.size()];
    const std::string bytes = read_bytes(path);
    t.gather_text("");  // all have read it
    if (t.rank() == 0) {
      std::string changed = bytes;
      char& byte = changed[static_cast<std::size_t>(i) * 7919 % changed.size()];
      byte = static_cast<char>(byte ^ (1 << i % 8));
      write_bytes(path, changed);
    }
    t.gather_text("");
    t.check_throws<CheckpointError>(path, [&] { checkpoint::load(folder, other.state()); });
    t.gather_text("");
    if (t.rank() == 0) write_bytes(path, bytes);
    t.gather_text("");
  }
  check_same_state(t, other.full(), before, "after 100 refused loads");
  checkpoint::load(folder, other.state());
  check_same_state(t, other.full(), run.full(), "after the repair");
}

TESSERA_RANK_TEST("damage of what is read last is found before the model changes", "[checkpoint]") {
  const std::string folder = shared_folder(t, "last") + "/step-1";
  Run run(t), other(t, 8);
  nn::StateDict values;  // of more than one chunk, behind the model's wider elements
  values.set("large", full({1 << 19}, 1));
  checkpoint::State state = run.state();
  state.values = &values;
  checkpoint::save(folder, state);
  const std::string file = folder + "/rank-00000.safetensors";
  if (t.rank() == 0) {
    std::string bytes = read_bytes(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_bytes(file, bytes);
  }
  t.gather_text("");
  const nn::StateDict before = other.full();
  state = other.state();
  state.values = &values;
  t.check_throws<CheckpointError>("tensor \"values.large\": \"" + file + "\" is damaged",
                                  [&] { checkpoint::load(folder, state); });
  check_same_state(t, other.full(), before, "after a refused load");
  state.values = nullptr;  // its bytes are not read then
  checkpoint::load(folder, state);
}

TEST_CASE("a disk without enough space is known before anything is written", "[checkpoint]") {
  const std::string parent = temporary_path("full", "run");
  nn::StateDict values;  // one element that is repeated, as large as no disk
  values.set("w", Tensor::from_vector<float>({1}, {1, 1}).expand({std::int64_t{1} << 40, 1 << 20}));
  const std::string error =
      thrown<CheckpointError>([&] { checkpoint::save(parent + "/step-1", {.values = &values}); });
  CHECK(error.find("/step-1\" needs 4611686018427387904 bytes, and the disk has ") !=
        std::string::npos);
  CHECK(names_in(parent).empty());
}

}  // namespace
}  // namespace tessera::testing
