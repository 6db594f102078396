// State dicts of models with tied weights and shared modules, and the hooks around saving and
// loading.
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/module_state_support.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using namespace testing;
using nn::LoadReport;
using nn::StateDict;

TEST_CASE("load: something tied is found under any of its names") {
  const Tensor weight = arange(9, {.dtype = DType::kF32}).view({3, 3});
  for (const Names& given : {Names{"a", "first.weight"}, Names{"b", "second.weight"},
                             Names{"a", "again.weight"}, Names{"b", "a", "first.weight"},
                             Names{"second.weight", "a", "again.weight", "first.weight"}}) {
    Tied tied;
    StateDict state;
    for (const std::string& name : given) {
      state.set(name, name.size() == 1 ? full({2}, 3) : clone(weight));
    }
    const LoadReport report = nn::load_state_dict(tied, state);
    CHECK(report.unexpected.empty());
    CHECK(same(tied.second.weight().local().tensor(), weight));
    CHECK(values(tied.b.local().tensor()) == std::vector<double>{3, 3});
    CHECK(tied.first.weight().name() == "first.weight");
  }
}

TEST_CASE("load: copies of something tied that differ") {
  Tied tied;
  StateDict state;
  state.set("a", zeros({2}));
  state.set("second.weight", zeros({3, 3}));
  state.set("first.weight", ones({3, 3}));
  state.set("again.weight", zeros({3, 3}, {.dtype = DType::kBF16}));
  CHECK(loading(tied, state) ==
        "[nn.load_state_dict] the state does not fit Tied: \"second.weight\" and \"first.weight\" "
        "are tied in the model and differ in the state");
  state.set("first.weight", zeros({3, 4}));
  CHECK(loading(tied, state) ==
        "[nn.load_state_dict] the state does not fit Tied: \"first.weight\" has shape [3, 4], in "
        "the model [3, 3]" +
            std::string(kOnlyHelps));
  state.erase("first.weight");
  nn::load_state_dict(tied, state);  // equal once they are converted
  // One of two copies that are NaN in the same places is a copy.
  state.set("first.weight", full({3, 3}, std::nan("")));
  state.set("second.weight", full({3, 3}, std::nan("")));
  state.erase("again.weight");
  nn::load_state_dict(tied, state);
}

TEST_CASE("load: buffers are tied by sharing a module") {
  Norm shared;
  class Twice final : public nn::Layer<Twice> {
   public:
    explicit Twice(Norm& norm) {
      register_module("one", norm);
      register_module("two", norm);
    }
    Variable forward(const Variable& x) { return x; }
  } twice(shared);
  nn::initialize(twice);
  StateDict state = nn::state_dict(twice).clone();
  CHECK(state.size() == 5);
  state.set("two.count", full({}, 8, {.dtype = DType::kI64}));
  CHECK(loading(twice, state) ==
        "[nn.load_state_dict] the state does not fit Twice: \"one.count\" and \"two.count\" are "
        "tied in the model and differ in the state");
  state.erase("one.count");
  nn::load_state_dict(twice, state);
  CHECK(shared.count.tensor().item<std::int64_t>() == 8);
  state.set("two.table", zeros({2}));
  CHECK(loading(twice, state) ==
        "[nn.load_state_dict] the state does not fit Twice: \"two.table\" (f32 [2]) is unexpected" +
            std::string(kLenientHelps));
}

TEST_CASE("state dict: hooks run parents first, and children are complete after") {
  Norm norm;
  nn::initialize(norm);
  Names calls;
  const auto note = [&calls](const std::string& what) {
    return [&calls, what](nn::Module& module, const std::string& prefix) {
      calls.push_back(what + " " + module.type_name() + " " + prefix);
    };
  };
  norm.state_dict_hooks().before_save.add(note("before"));
  norm.up.state_dict_hooks().before_save.add(note("before"));
  norm.state_dict_hooks().before_save.add([](nn::Module& module, const std::string&) {
    fill_(dynamic_cast<Norm&>(module).scale.local().tensor(), 6);
  });
  const auto after = [&calls](nn::Module& module, StateDict& state, const std::string& prefix) {
    calls.push_back("after " + module.type_name() + " " + prefix + " " +
                    std::to_string(state.size()));
    state.set(prefix + "version", std::int64_t{2});
    state.erase(prefix + "bias");
  };
  norm.state_dict_hooks().after_save.add(after);
  HookHandle handle = norm.up.state_dict_hooks().after_save.add(after);
  const StateDict state = nn::state_dict(norm, {.prefix = "m."});
  CHECK(calls ==
        Names{"before Norm m.", "before Linear m.up.", "after Linear m.up. 5", "after Norm m. 5"});
  CHECK(names(state) ==
        Names{"m.scale", "m.mean", "m.count", "m.up.weight", "m.up.version", "m.version"});
  CHECK(values(state.tensor("m.scale")) == std::vector<double>{6, 6});
  handle.remove();
  CHECK(nn::state_dict(norm).contains("up.bias"));
}

TEST_CASE("load: hooks may rename what is loaded and forgive what is not there") {
  Norm from, to;
  nn::initialize(from, {.seed = 5});
  StateDict state = nn::state_dict(from).clone();
  const Tensor weight = state.tensor("up.weight");
  state.erase("up.weight");
  state.set("up.old_name", weight);
  Names prefixes;
  to.state_dict_hooks().before_load.add(
      [&](nn::Module&, StateDict& dict, const std::string& prefix) {
        prefixes.push_back("root " + prefix);
        dict.erase("up.bias");
      });
  to.up.state_dict_hooks().before_load.add(
      [&](nn::Module&, StateDict& dict, const std::string& prefix) {
        prefixes.push_back(prefix);
        dict.set(prefix + "weight", dict.tensor(prefix + "old_name"));
        dict.erase(prefix + "old_name");
      });
  CHECK(loading(to, state) ==
        "[nn.load_state_dict] the state does not fit Norm: \"up.bias\" (f32 [3]) is missing" +
            std::string(kLenientHelps));
  CHECK(prefixes == Names{"root ", "up."});
  CHECK(state.contains("up.old_name"));  // the hooks had a copy

  // After the load the report decides.
  std::optional<LoadReport> seen;
  HookHandle forgive =
      to.state_dict_hooks().after_load.add([&](nn::Module& module, LoadReport& report) {
        CHECK(same(dynamic_cast<Norm&>(module).up.weight().local().tensor(), weight));
        seen = report;
        report.missing.clear();
      });
  CHECK(nn::load_state_dict(to, state).missing.empty());
  REQUIRE(seen.has_value());
  CHECK(seen->missing == Names{"up.bias"});
  forgive.remove();
  to.up.state_dict_hooks().after_load.add(
      [](nn::Module&, LoadReport& report) { report.unexpected.push_back("told by a hook"); });
  CHECK(loading(to, state) ==
        "[nn.load_state_dict] the state does not fit Norm: \"up.bias\" (f32 [3]) is missing; "
        "\"told by a hook\" is unexpected" +
            std::string(kLenientHelps));
  state.set("scale", zeros({3}));  // with a misfit nothing runs
  seen.reset();
  CHECK(loading(to, state) ==
        "[nn.load_state_dict] the state does not fit Norm: \"scale\" has shape [3], in the model "
        "[2]; \"up.bias\" (f32 [3]) is missing" +
            std::string(kLenientHelps));
}

TEST_CASE("load: a hook's entries outside the prefix are unexpected") {
  Norm norm;
  nn::initialize(norm);
  StateDict state = nn::state_dict(norm, {.prefix = "m."});
  norm.state_dict_hooks().before_load.add(
      [](nn::Module&, StateDict& dict, const std::string&) { dict.set("x", true); });
  CHECK(nn::load_state_dict(norm, state, {.strict = false, .prefix = "m."}).unexpected ==
        Names{"x"});
}

}  // namespace
}  // namespace tessera
