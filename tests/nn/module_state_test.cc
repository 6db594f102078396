// State dicts of models: names and order, loading with every way it can fail.
#include "tessera/nn/state/module_state.h"

#include <catch2/catch.hpp>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/module_state_support.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera {
namespace {

using namespace testing;
using nn::LoadReport;
using nn::StateDict;

TEST_CASE("state dict: own parameters, own persistent buffers, then children") {
  Norm norm;
  CHECK(thrown<StateError>([&] { nn::state_dict(norm); }) ==
        "[nn.Parameter] parameter \"scale\" has no elements yet: call nn::initialize(model), or "
        "load a checkpoint; if that was done, register its module in the model");
  nn::initialize(norm);
  const StateDict state = nn::state_dict(norm);
  CHECK(names(state) == Names{"scale", "mean", "count", "up.weight", "up.bias"});
  CHECK(names(nn::state_dict(norm, {.prefix = "model."})) ==
        Names{"model.scale", "model.mean", "model.count", "model.up.weight", "model.up.bias"});
  // The dict shows the model.
  fill_(norm.scale.local().tensor(), 7);
  CHECK(values(state.tensor("scale")) == std::vector<double>{7, 7});
  CHECK(state.tensor("count").dtype() == DType::kI64);
}

TEST_CASE("state dict: something tied stands once, under its first name") {
  Tied tied;
  nn::initialize(tied);
  CHECK(names(nn::state_dict(tied)) == Names{"a", "first.weight"});
}

TEST_CASE("load: a model that has never been initialised becomes its reference") {
  Norm from, to, initialised;
  nn::initialize(from, {.seed = 5});
  fill_(from.count.tensor(), 12);
  nn::initialize(initialised, {.seed = 1});
  const LoadReport report = nn::load_state_dict(to, nn::state_dict(from));
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  check_equal(from, to);
  CHECK(to.up.weight().name() == "up.weight");
  CHECK(to.count.name() == "count");
  // What is not persistent is computed, as initialize() does.
  CHECK(same(to.table.tensor(), initialised.table.tensor()));
  nn::load_state_dict(to, nn::state_dict(from), {.seed = 5});
  CHECK(same(to.table.tensor(), from.table.tensor()));
  // The copies are the model's own.
  fill_(from.scale.local().tensor(), 9);
  CHECK(values(to.scale.local().tensor()) == std::vector<double>{1, 1});
}

TEST_CASE("load: through a file") {
  const std::string path = temporary_path("module_state", "model.safetensors");
  Norm from, to;
  nn::initialize(from, {.seed = 5});
  nn::save_state(path, nn::state_dict(from));
  nn::load_state_dict(to, nn::load_state(path));
  check_equal(from, to);
}

TEST_CASE("load: elements change, tensors and handles stay, and the write is counted") {
  Norm from, to;
  nn::initialize(from, {.seed = 5});
  nn::initialize(to, {.seed = 6});
  const Tensor before = to.scale.local().tensor(), mean = to.mean.tensor();
  const std::uint64_t version = before.version(), mean_version = mean.version();
  fill_(from.scale.local().tensor(), 3);
  nn::load_state_dict(to, nn::state_dict(from));
  CHECK(values(before) == std::vector<double>{3, 3});
  CHECK(before.version() > version);
  CHECK(mean.version() > mean_version);
  // Loading a model into itself changes nothing.
  const StateDict own = nn::state_dict(to).clone();
  nn::load_state_dict(to, nn::state_dict(to));
  for (const auto& [name, value] : nn::state_dict(to)) {
    CHECK(same(std::get<Tensor>(value), own.tensor(name)));
  }
}

TEST_CASE("load: dtypes of one kind are converted") {
  Norm from(DType::kF64), to;
  nn::initialize(from);
  fill_(from.scale.local().tensor(), 0.1);
  StateDict state = nn::state_dict(from);
  state.set("count", full({}, 41, {.dtype = DType::kI32}));
  nn::load_state_dict(to, state);
  CHECK(to.scale.local().dtype() == DType::kF32);
  CHECK(to.scale.local().tensor().to_vector<float>() == std::vector<float>{0.1F, 0.1F});
  CHECK(to.count.tensor().item<std::int64_t>() == 41);

  state.set("scale", zeros({2}, {.dtype = DType::kI64}));
  state.set("count", zeros({}));
  state.set("mean", zeros({2}, {.dtype = DType::kBool}));
  CHECK(
      loading(to, state) ==
      "[nn.load_state_dict] the state does not fit Norm: \"scale\" is i64 (integer), in the model "
      "f32 (floating); \"mean\" is bool (bool), in the model f32 (floating); \"count\" is f32 "
      "(floating), in the model i64 (integer)");
  CHECK(to.count.tensor().item<std::int64_t>() == 41);
}

TEST_CASE("load: all problems are told at once, and nothing is written") {
  Norm from, to, fresh;
  nn::initialize(from, {.seed = 5});
  nn::initialize(to, {.seed = 6});
  StateDict state = nn::state_dict(from);
  state.erase("scale");
  state.erase("up.bias");
  state.set("up.weight", zeros({3, 4}));
  state.set("mean", "text");
  state.set("up.more", zeros({4, 1}));
  state.set("epoch", std::int64_t{1});
  state.set("table", zeros({2}));  // not persistent, so not part of a state
  const std::string problems =
      "[nn.load_state_dict] the state does not fit Norm: \"mean\" is no tensor (text); "
      "\"up.weight\" has shape [3, 4], in the model [3, 2]";
  const std::string rest =
      "\"scale\" (f32 [2]) is missing; \"up.bias\" (f32 [3]) is missing; \"up.more\" (f32 [4, 1]) "
      "is unexpected; \"epoch\" (integer) is unexpected; \"table\" (f32 [2]) is unexpected";
  const StateDict before = nn::state_dict(to).clone();
  CHECK(loading(to, state) == problems + "; " + rest + kLenientHelps);
  // Shapes must fit in a lenient load, too.
  CHECK(loading(to, state, {.strict = false}) == problems + kOnlyHelps);
  for (const auto& [name, value] : nn::state_dict(to)) {
    CHECK(same(std::get<Tensor>(value), before.tensor(name)));
  }
  CHECK(loading(fresh, state) == problems + "; " + rest + kLenientHelps);
  CHECK_FALSE(fresh.scale.is_materialized());
  CHECK_FALSE(fresh.table.is_materialized());

  state.erase("up.weight");
  state.erase("mean");
  CHECK(loading(to, state) ==
        "[nn.load_state_dict] the state does not fit Norm: \"scale\" (f32 [2]) is missing; "
        "\"mean\" (f32 [2]) is missing; \"up.weight\" (f32 [3, 2]) is missing; \"up.bias\" (f32 "
        "[3]) is missing; \"up.more\" (f32 [4, 1]) is unexpected; \"epoch\" (integer) is "
        "unexpected; \"table\" (f32 [2]) is unexpected" +
            std::string(kLenientHelps));
}

TEST_CASE("load: a lenient load takes what is there and reports the rest") {
  Norm from, to, fresh;
  nn::initialize(from, {.seed = 5});
  nn::initialize(to, {.seed = 6});
  StateDict state = nn::state_dict(from);
  state.erase("scale");
  state.set("extra", zeros({1}));
  fill_(to.scale.local().tensor(), 4);
  const LoadReport report = nn::load_state_dict(to, state, {.strict = false});
  CHECK(report.missing == Names{"scale"});
  CHECK(report.unexpected == Names{"extra"});
  CHECK(values(to.scale.local().tensor()) == std::vector<double>{4, 4});
  CHECK(same(to.up.weight().local().tensor(), from.up.weight().local().tensor()));

  nn::load_state_dict(fresh, state, {.strict = false});
  CHECK(fresh.up.weight().is_materialized());
  CHECK(thrown<StateError>([&] { fresh.scale.local(); }) ==
        "[nn.Parameter] parameter \"scale\" has no elements yet: call nn::initialize(model), or "
        "load a checkpoint; if that was done, register its module in the model");
}

TEST_CASE("load: under a prefix, and nothing else is looked at") {
  Norm from, to;
  nn::initialize(from, {.seed = 5});
  StateDict run;
  run.set("step", std::int64_t{7});
  run.add("model.", nn::state_dict(from));
  run.set("model2.scale", zeros({2}));
  nn::load_state_dict(to, run, {.prefix = "model."});
  check_equal(from, to);
  CHECK(to.up.weight().name() == "up.weight");
  run.erase("model.scale");
  run.set("model.x", true);
  run.set("model.", true);  // no name is left of it
  const LoadReport report = nn::load_state_dict(to, run, {.strict = false, .prefix = "model."});
  CHECK(report.missing == Names{"model.scale"});
  CHECK(report.unexpected == Names{"model.x", "model."});
  nn::load_state_dict(to, run.part("model."), {.strict = false});
}

TEST_CASE("load: scalars, empty tensors and strided sources") {
  class Odd final : public nn::Layer<Odd> {
   public:
    Odd()
        : point({.shape = {}, .init = nn::init::ones()}),
          none({.shape = {0, 3}, .init = nn::init::ones()}),
          matrix({.shape = {3, 2}, .init = nn::init::ones()}),
          mask({.shape = {2}, .dtype = DType::kBool, .init = nn::init::ones()}) {
      register_parameter("point", point);
      register_parameter("none", none);
      register_parameter("matrix", matrix);
      register_buffer("mask", mask);
    }
    Variable forward(const Variable& x) { return x; }
    nn::Parameter point, none, matrix;
    nn::Buffer mask;
  } odd;
  StateDict state;
  state.set("point", Tensor::scalar(2.5));
  state.set("none", zeros({0, 3}));
  state.set("matrix", arange(6, {.dtype = DType::kF32}).view({2, 3}).transpose(0, 1));
  state.set("mask", Tensor::from_vector<bool>({false, true}, {2}));
  nn::load_state_dict(odd, state);
  CHECK(odd.point.local().tensor().item<float>() == 2.5F);
  CHECK(values(odd.matrix.local().tensor()) == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(odd.mask.tensor().to_vector<bool>() == std::vector<bool>{false, true});
  state.set("none", zeros({3, 0}));
  state.set("point", zeros({1}));
  CHECK(
      loading(odd, state) ==
      "[nn.load_state_dict] the state does not fit Odd: \"point\" has shape [1], in the model []; "
      "\"none\" has shape [3, 0], in the model [0, 3]" +
          std::string(kOnlyHelps));
}

TEST_CASE("load: sharded parameters take this rank's rows") {
  nn::Linear linear({.in = 2, .out = 5, .bias = false}), fresh({.in = 2, .out = 5, .bias = false});
  const auto owner = std::make_shared<FakeOwner>("root");
  linear.weight().shard(row_sharding({5, 2}, 1, 3, 4), owner);
  fresh.weight().shard(row_sharding({5, 2}, 1, 3, 4), owner);
  nn::initialize(linear);
  const StateDict state = nn::state_dict(linear);
  CHECK(state.tensor("weight").shape() == Shape{3, 2});
  nn::load_state_dict(fresh, state);
  CHECK(same(fresh.weight().local().tensor(), linear.weight().local().tensor()));

  nn::Linear other({.in = 2, .out = 5, .bias = false});
  other.weight().shard(row_sharding({5, 2}, 0, 2, 4), owner);
  CHECK(loading(other, state) ==
        "[nn.load_state_dict] the state does not fit Linear: \"weight\" has shape [3, 2] (one "
        "rank's part of [5, 2]), in the model [2, 2] (this rank's part of [5, 2])");
  CHECK_FALSE(other.weight().is_materialized());
}

TEST_CASE("load: on the null device") {
  Norm plan, from, here;
  nn::initialize(plan, {.device = kNull});
  nn::initialize(from);
  Norm to;
  nn::load_state_dict(to, nn::state_dict(plan), {.device = kNull});
  CHECK(to.scale.local().device().is_null());
  CHECK(to.table.tensor().device().is_null());
  nn::load_state_dict(to, nn::state_dict(from));  // of elements, shapes go there
  const std::string misfit = " is on the null device, in the model on " + default_device().str();
  CHECK(loading(here, nn::state_dict(plan)) ==
        "[nn.load_state_dict] the state does not fit Norm: \"scale\"" + misfit + "; \"mean\"" +
            misfit + "; \"count\"" + misfit + "; \"up.weight\"" + misfit + "; \"up.bias\"" +
            misfit);
  Tied tied;
  StateDict state;
  state.set("a", zeros({2}, {.device = kNull}));
  state.set("b", zeros({2}));
  state.set("first.weight", zeros({3, 3}));
  nn::load_state_dict(tied, state, {.device = kNull});
}

TEST_CASE("load: only what a pattern covers") {
  nn::Sequential net, other;
  net.add<nn::Linear>({.in = 2, .out = 3});
  net.add<nn::Linear>({.in = 3, .out = 4});
  other.add<nn::Linear>({.in = 2, .out = 3});
  other.add<nn::Linear>({.in = 3, .out = 5, .bias = false});  // another head
  nn::initialize(net, {.seed = 1});
  nn::initialize(other, {.seed = 2});
  for (const std::string prefix : {"", "model."}) {
    const nn::StateDict state = nn::state_dict(other, {.prefix = prefix}).clone();
    const nn::StateDict before = nn::state_dict(net).clone();
    const std::string misfit = thrown<InvalidArgument>(
        [&] { nn::load_state_dict(net, state, {.strict = false, .prefix = prefix}); });
    CHECK(misfit == "[nn.load_state_dict] the state does not fit Sequential: \"" + prefix +
                        "1.weight\" has shape [5, 3], in the model [4, 3]" + kOnlyHelps);
    const nn::LoadReport report =
        nn::load_state_dict(net, state, {.only = {"0.*"}, .prefix = prefix});
    CHECK(report.missing.empty());
    CHECK(report.unexpected.empty());
    CHECK(equal(nn::state_dict(net).tensor("0.weight"), state.tensor(prefix + "0.weight")));
    CHECK(equal(nn::state_dict(net).tensor("0.bias"), state.tensor(prefix + "0.bias")));
    CHECK(equal(nn::state_dict(net).tensor("1.weight"), before.tensor("1.weight")));
    CHECK(thrown<InvalidArgument>([&] {
            nn::load_state_dict(net, state, {.only = {"0.*", "O.*"}, .prefix = prefix});
          }) ==
          "[nn.load_state_dict] the state does not fit Sequential: the pattern \"O.*\" "
          "matches no name in it");
    CHECK(thrown<InvalidArgument>([&] {
            nn::load_state_dict(net, state, {.only = {"**.bias", "0.*"}, .prefix = prefix});
          }).find("1.bias\" (f32 [4]) is missing") != std::string::npos);
    nn::initialize(net, {.seed = 3});
  }
}

TEST_CASE("load: a member that was never registered") {
  class Forgetful final : public nn::Layer<Forgetful> {
   public:
    Forgetful() : weight({.shape = {2}, .init = nn::init::ones()}) {}
    Variable forward(const Variable& x) { return x; }
    nn::Parameter weight;
  } forgetful;
  const std::string text = thrown<StateError>([&] { nn::load_state_dict(forgetful, {}); });
  CHECK(text.find("[nn.load_state_dict] Forgetful has a parameter of shape [2]") == 0);
  CHECK(text.find("that was never registered: call register_parameter") != std::string::npos);
}

}  // namespace
}  // namespace tessera
