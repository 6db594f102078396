// Saving and loading on the ranks of a test: what is published, what is refused, and what stays.

#include "tessera/fsdp/checkpoint/checkpoint.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/checkpoint/async_saver.h"
#include "tessera/fsdp/checkpoint/export.h"
#include "tessera/fsdp/checkpoint/pending_save.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/ema.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/io/safetensors.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/checkpoint/checkpoint_run.h"
#include "tessera/tests/fsdp/state/state_model.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

TESSERA_RANK_TEST("a checkpoint is a folder of safetensors files and an index", "[checkpoint]") {
  const std::string parent = shared_folder(t, "files"), folder = parent + "/step-7";
  Run run(t);
  train(run.net, run.optimizer, 2);
  checkpoint::save(folder, run.state());
  const std::vector<std::string> names = names_in(folder);
  t.check(names_in(parent) == std::vector<std::string>{"step-7"}, "other files are there");
  t.check(!names.empty() && names.front() == "index.json", "no index");
  // Every rank that has rows has a file, which other programs can read.
  t.check(std::ssize(names) <= t.size() + 1, "{} files", names.size());
  for (std::size_t i = 1; i < names.size(); ++i) {
    const SafetensorsFile file(folder + "/" + names[i]);
    t.check(!file.tensors().empty(), "{} is empty", names[i]);
    for (const SafetensorsInfo& info : file.tensors())
      t.check(info.name.starts_with("model.") || info.name.starts_with("optimizer."), "{}",
              info.name);
  }
  checkpoint::StoredCheckpoint stored(folder);
  t.check(stored.damage().empty(), "damaged");
  // One process makes an ordinary file of the model.
  const nn::StateDict whole = fsdp::full_state_dict(run.net, {.rank0_only = false});
  if (t.rank() == 0) {
    const std::string file = parent + "/model.safetensors",
                      expected = parent + "/expected.safetensors";
    checkpoint::export_model(folder, file);
    nn::save_state(expected, whole);
    t.check(read_bytes(file) == read_bytes(expected), "the exported file differs");
  }
  const checkpoint::StoredTensor* weight = stored.find("model.first.weight");
  t.check(weight != nullptr && weight->shape == Shape{7, 7}, "the weight is not whole");
  t.check(stored.find("model.tied.weight") == nullptr, "a tied weight is saved twice");
  t.check(stored.index().values.integer("optimizer.state.first.weight.step") == 2, "step");
}

TESSERA_RANK_TEST("of a checkpoint's model what matches patterns is loaded", "[checkpoint]") {
  const std::string folder = shared_folder(t, "patterns") + "/step-1";
  Run run(t), other(t, 8);
  train(run.net, run.optimizer, 1);
  checkpoint::save(folder, run.state());
  const nn::StateDict saved = fsdp::full_state_dict(run.net, {.rank0_only = false}).clone(),
                      before = fsdp::full_state_dict(other.net, {.rank0_only = false}).clone();
  checkpoint::load(folder, {.group = run.group, .model = &other.net},
                   {.only = {"first.*", "scale"}});
  for (const auto& [name, value] : fsdp::full_state_dict(other.net, {.rank0_only = false})) {
    const bool loaded = name.starts_with("first.") || name == "tied.weight" || name == "scale";
    t.check_equal(std::get<Tensor>(value), (loaded ? saved : before).tensor(name), name.c_str());
  }
  t.check_throws<InvalidArgument>("the pattern \"none\" matches no name in it", [&] {
    checkpoint::load(folder, {.group = run.group, .model = &other.net}, {.only = {"none"}});
  });
}

TESSERA_RANK_TEST("a loaded run goes on with equal bits", "[checkpoint]") {
  const std::string folder = shared_folder(t, "goes_on") + "/step-2";
  Run run(t), other(t, 8);
  train(run.net, run.optimizer, 2);
  checkpoint::save(folder, run.state());
  train(run.net, run.optimizer, 2, 2);
  // The seed computes the buffer that is not saved.
  checkpoint::load(folder, other.state(), {.seed = 3});
  train(other.net, other.optimizer, 2, 2);
  check_same_state(t, other.full(), run.full(), "after two more steps");
}

TESSERA_RANK_TEST("schedule, averages and the program's values are part of it", "[checkpoint]") {
  const std::string folder = shared_folder(t, "members") + "/step-1";
  const auto members = [&](Run& run, nn::optim::LrScheduler& scheduler, nn::GradScaler& scaler,
                           nn::StateDict& values) {
    checkpoint::State state = run.state();
    state.scheduler = &scheduler;
    state.scaler = &scaler;
    state.values = &values;
    return state;
  };
  Run run(t), other(t, 8);
  const auto schedule = nn::optim::warm_up_cosine({.warm_up = 3, .steps = 9});
  nn::optim::LrScheduler scheduler(run.optimizer, schedule),
      new_scheduler(other.optimizer, schedule);
  nn::GradScaler scaler({.init_scale = 128}), new_scaler;
  nn::optim::Ema ema(run.net.parameters(), {.decay = 0.5}),
      new_ema(other.net.parameters(), {.decay = 0.5});
  train(run.net, run.optimizer, 1);
  scheduler.step();
  ema.update();
  nn::StateDict values;
  values.set("position", std::int64_t{12});
  values.add("ema.", ema.state_dict());
  checkpoint::save(folder, members(run, scheduler, scaler, values));

  new_ema.update();
  nn::StateDict new_values;
  new_values.add("ema.", new_ema.state_dict());  // says which parts this rank has
  checkpoint::load(folder, members(other, new_scheduler, new_scaler, new_values));
  t.check(new_values.integer("position") == 12, "position {}", new_values.integer("position"));
  new_ema.load_state_dict(new_values.part("ema."));
  check_same_state(t, new_ema.state_dict(), ema.state_dict(), "averages");
  check_same_state(t, new_scheduler.state_dict(), scheduler.state_dict(), "schedule");
  check_same_state(t, new_scaler.state_dict(), scaler.state_dict(), "scaler");
}

// Attention by heads, whose packed projections are three row ranges of one parameter.
class Attending final : public nn::Layer<Attending> {
 public:
  Attending() : attention_({.dim = 12, .heads = 6, .kv_heads = 3, .dtype = DType::kF64}) {
    register_module("attention", attention_);
  }
  Variable forward(const Variable& x) { return attention_(x, x, x).output; }

 private:
  nn::MultiheadAttention attention_;
};

TESSERA_RANK_TEST_WITH("several row ranges of one parameter on a rank", "[checkpoint]",
                       {.worlds = {3, 6}}) {
  const std::string folder = shared_folder(t, "ranges") + "/step-1";
  const distributed::DeviceMesh mesh({"dp", "tp"}, {t.size() / 3, 3}, t.world().group(),
                                     t.world().device());
  const auto shard = [&](Attending& model) {
    distributed::parallelize(model, mesh["tp"], {{"attention", distributed::HeadParallel{}}});
    fsdp::fully_shard(model, {.mesh = mesh["dp"]});
  };
  Attending net, plain, other;
  shard(net);
  shard(other);
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  checkpoint::save(folder, {.group = t.world().group(), .model = &net});
  checkpoint::load(folder, {.group = t.world().group(), .model = &other});
  check_same_state(t, nn::state_dict(other), nn::state_dict(net), "on the ranks");
  Attending whole;
  checkpoint::load(folder, {.model = &whole});
  check_same_state(t, nn::state_dict(whole), nn::state_dict(plain), "whole");
}

TESSERA_RANK_TEST("what is not sharded comes from the first rank", "[checkpoint]") {
  const std::string folder = shared_folder(t, "first") + "/step-1";
  Run run(t), other(t, 8);
  fill_(run.net.scale().tensor(), t.rank() + 1);
  nn::StateDict values, read;
  values.set("rank", std::int64_t{t.rank()});
  values.set("ranks", Tensor::from_vector<std::int64_t>({t.rank()}, {1}));
  checkpoint::State state = run.state();
  state.values = &values;
  checkpoint::save(folder, state);
  state = other.state();
  state.values = &read;
  checkpoint::load(folder, state);
  t.check_equal(other.net.scale().tensor(), full_like(other.net.scale().tensor(), 1));
  t.check(read.integer("rank") == 0, "rank {}", read.integer("rank"));
  t.check(read.tensor("ranks").item<std::int64_t>() == 0, "ranks");
  // Ranks that disagree about a shape, and a name that is a value here and a tensor there.
  if (t.size() == 1) return;
  if (t.rank() == 1) values.set("ranks", Tensor::from_vector<std::int64_t>({1, 2}, {2}));
  state = run.state();
  state.values = &values;
  t.check_throws<InvalidArgument>("\"values.ranks\" is i64 [2] on rank 1, and i64 [1] on a rank",
                                  [&] { checkpoint::save(folder + "0", state); });
  if (t.rank() == 1) values.set("ranks", std::int64_t{1});
  t.check_throws<InvalidArgument>("\"values.ranks\" is a value on rank 1 and a tensor on another",
                                  [&] { checkpoint::save(folder + "0", state); });
}

TESSERA_RANK_TEST("names are the model's, whatever is around the model", "[checkpoint]") {
  const std::string folder = shared_folder(t, "names") + "/step-1";
  Run run(t);
  nn::initialize(run.net, {.seed = 3, .prefix = "student."});
  train(run.net, run.optimizer, 1);
  checkpoint::save(folder, run.state());
  Run same(t, 8), other(t, 8);
  nn::initialize(same.net, {.seed = 8, .prefix = "teacher."});
  for (Run* each : {&same, &other}) {
    checkpoint::load(folder, each->state());
    for (std::size_t i = 0; i < run.optimizer.parameters().size(); ++i)
      t.check_equal(each->optimizer.state(each->optimizer.parameters()[i], "momentum"),
                    run.optimizer.state(run.optimizer.parameters()[i], "momentum"));
  }
}

TESSERA_RANK_TEST("a snapshot is the state of its time", "[checkpoint]") {
  const std::string folder = shared_folder(t, "snapshot") + "/step-1";
  Run run(t), other(t, 8);
  train(run.net, run.optimizer, 1);
  const nn::StateDict expected = run.full();
  checkpoint::PendingSave pending(folder, run.state(), current_rank_context());
  train(run.net, run.optimizer, 1);
  pending.write();
  pending.publish();
  checkpoint::load(folder, other.state());
  check_same_state(t, other.full(), expected, "of the snapshot");
}

TEST_CASE("parts of large tensors are read in pieces, across chunks", "[checkpoint]") {
  const std::string folder = temporary_path("pieces", "step-1");
  nn::StateDict values;
  const Tensor wide = reshape(arange(601 * 1303, {.dtype = DType::kI64}), {601, 1303}),
               line = reshape(arange(700'001, {.dtype = DType::kI64}), {1, 700'001}),
               flags = gt(remainder(arange(3'000'017), 3), 0);
  values.set("wide", wide);
  values.set("line", line);
  values.set("flags", flags);
  checkpoint::save(folder, {.values = &values});
  checkpoint::StoredCheckpoint stored(folder);
  const auto read = [&](const std::string& name, const nn::ShardBox& box, DType dtype) {
    const Tensor out = Tensor::empty(box.extent, {.dtype = dtype});
    const checkpoint::StoredTensor& tensor = *stored.find("values." + name);
    stored.check(tensor, box);
    stored.read(tensor, box, out);
    return out;
  };
  const nn::ShardBox inner{.offset = {3, 5}, .extent = {590, 1290}};
  CHECK(equal(read("wide", inner, DType::kI64), wide.narrow(0, 3, 590).narrow(1, 5, 1290)));
  CHECK(equal(read("wide", inner, DType::kF64),
              cast(wide.narrow(0, 3, 590).narrow(1, 5, 1290), DType::kF64)));
  CHECK(equal(read("line", {.offset = {0, 7}, .extent = {1, 699'990}}, DType::kI64),
              line.narrow(1, 7, 699'990)));
  CHECK(equal(read("flags", {.offset = {1}, .extent = {3'000'000}}, DType::kBool),
              flags.narrow(0, 1, 3'000'000)));
}

TESSERA_RANK_TEST("an asynchronous save has the state of its call", "[checkpoint]") {
  const std::string parent = shared_folder(t, "async");
  Run run(t);
  nn::StateDict expected;
  {
    checkpoint::AsyncSaver saver;
    t.check(saver.poll(), "a save is under way");
    for (int step = 1; step <= 3; ++step) {
      train(run.net, run.optimizer, 1, step);
      if (step == 2) expected = run.full().clone();
      saver.save(checkpoint::step_folder(parent, step), run.state());
    }
    train(run.net, run.optimizer, 1, 4);
    while (!saver.poll()) {
    }
    t.check(saver.poll(), "it is not published");
    // A folder that exists is refused at the call.
    saver.save(parent + "/step-9", run.state());
    saver.wait();
    t.check_throws<CheckpointError>("already",
                                    [&] { saver.save(parent + "/step-9", run.state()); });
    saver.save(parent + "/step-10", run.state());  // never published
  }
  t.gather_text("");
  t.check(checkpoint::list(parent).size() == 4, "other folders");
  Run other(t, 8);
  checkpoint::load(checkpoint::step_folder(parent, 2), other.state());
  check_same_state(t, other.full(), expected, "of step 2");
}

TEST_CASE("the newest complete checkpoint, and those that are kept", "[checkpoint]") {
  const std::string parent = temporary_path("listed", "run");
  CHECK(checkpoint::list(parent).empty());
  CHECK_FALSE(checkpoint::newest(parent));
  nn::StateDict values;
  values.set("w", Tensor::from_vector<float>({1, 2}, {2}));
  for (const int step : {2, 10, 9, 30})
    checkpoint::save(checkpoint::step_folder(parent, step), {.values = &values});
  std::filesystem::create_directory(parent + "/step-007");
  std::filesystem::create_directory(parent + "/step-99");
  std::filesystem::remove(parent + "/step-30/rank-00000.safetensors");
  const auto all = checkpoint::list(parent);
  REQUIRE(all.size() == 5);
  CHECK(all[0].step == 2);
  CHECK(all[2].folder == parent + "/step-10");
  CHECK(all[2].problem.empty());
  CHECK(all[3].problem.find("step-30/rank-00000.safetensors\": No such file") != std::string::npos);
  CHECK(all[4].problem.find("step-99/index.json\": No such file") != std::string::npos);
  CHECK(checkpoint::newest(parent) == parent + "/step-10");
  CHECK(thrown<InvalidArgument>([&] { checkpoint::keep_newest(parent, 0); }) ==
        "[checkpoint.keep_newest] count is 0; at least one is kept");
  checkpoint::keep_newest(parent, 2);
  CHECK(names_in(parent) ==
        std::vector<std::string>{"step-007", "step-10", "step-30", "step-9", "step-99"});
  // A copy is as good as the original.
  std::filesystem::copy(parent + "/step-10", parent + "/copy");
  nn::StateDict back;
  checkpoint::load(parent + "/copy", {.values = &back});
  CHECK(back.tensor("w").to_vector<float>() == std::vector<float>{1, 2});
}

}  // namespace
}  // namespace tessera::testing
