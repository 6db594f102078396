// StateDict, the container.

#include <catch2/catch.hpp>

#include "tessera/nn/state/state_dict.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::StateDict;
using testing::thrown;

std::string names(const StateDict& dict) {
  std::string out;
  for (const auto& [name, value] : dict) out += name + ":" + nn::state_value_kind(value) + " ";
  return out;
}

TEST_CASE("a state dict keeps its order; a replaced value keeps its place") {
  StateDict dict;
  dict.set("w", full({2}, 1));
  dict.set("epoch", std::int64_t{3});
  dict.set("lr", 0.5);
  dict.set("name", "mlp");
  dict.set("done", false);
  CHECK(names(dict) == "w:tensor epoch:integer lr:number name:text done:bool ");
  dict.set("epoch", std::int64_t{4});
  CHECK(names(dict) == "w:tensor epoch:integer lr:number name:text done:bool ");
  CHECK(dict.integer("epoch") == 4);
  dict.set("epoch", std::int64_t{0});  // a number, though it could be a null pointer
  CHECK(dict.integer("epoch") == 0);
  dict.set("epoch", std::int64_t{4});
  CHECK(dict.number("epoch") == 4.0);
  CHECK(dict.number("lr") == 0.5);
  CHECK(dict.text("name") == "mlp");
  CHECK_FALSE(dict.boolean("done"));
  CHECK(dict.tensor("w").numel() == 2);
  CHECK(dict.erase("epoch"));
  CHECK_FALSE(dict.erase("epoch"));
  CHECK(names(dict) == "w:tensor lr:number name:text done:bool ");
  CHECK(dict.text("name") == "mlp");  // positions behind the erased one are still right
  CHECK(dict.size() == 4);
  CHECK(dict.find("epoch") == nullptr);
  CHECK(StateDict().empty());
}

TEST_CASE("a state dict knows which tensors are one rank's part of a sharded tensor") {
  StateDict dict;
  dict.set("w", full({2}, 1));
  dict.set("b", full({2}, 1));
  dict.set("epoch", std::int64_t{3});
  CHECK(dict.part_of("w") == nullptr);
  const nn::ShardSpec spec{
      .global_shape = {5}, .boxes = {{.offset = {2}, .extent = {2}}}, .sharded_axes = {"data"}};
  dict.mark_part("w", spec);
  CHECK(*dict.part_of("w") == spec);
  const auto whole = [](const StateDict& of, const std::string& name) {
    const nn::ShardSpec* part = of.part_of(name);
    return part == nullptr ? "none" : part->global_shape.str();
  };
  CHECK(whole(dict, "w") == "[5]");
  CHECK(whole(dict, "b") == "none");
  StateDict all;
  all.add("model.", dict);
  CHECK(whole(all, "model.w") == "[5]");
  CHECK(whole(all.part("model."), "w") == "[5]");
  CHECK(whole(all.clone(), "model.w") == "[5]");
  CHECK(whole(all, "w") == "none");
  dict.set("w", full({5}, 1));  // another tensor, which is whole
  CHECK(whole(dict, "w") == "none");
  all.erase("model.w");
  all.set("model.w", full({5}, 1));
  CHECK(whole(all, "model.w") == "none");
  CHECK(thrown<InvalidArgument>([&] { dict.mark_part("v", spec); }) ==
        "[nn.StateDict] there is no \"v\" among its 3 entries");
  CHECK(thrown<InvalidArgument>([&] { dict.mark_part("epoch", spec); }) ==
        "[nn.StateDict] \"epoch\" is of kind integer, not tensor");
}

TEST_CASE("parts are put in under a prefix and taken out again; clone has its own elements") {
  StateDict model, all;
  model.set("w", full({2}, 1));
  model.set("b", full({1}, 2));
  all.set("step", std::int64_t{1});
  all.add("model.", model);
  CHECK(names(all) == "step:integer model.w:tensor model.b:tensor ");
  CHECK(names(all.part("model.")) == "w:tensor b:tensor ");
  CHECK(all.part("optimizer.").empty());
  const StateDict copy = all.clone();
  fill_(model.tensor("w"), 9);
  CHECK(all.tensor("model.w").to_vector<float>() == std::vector<float>{9, 9});
  CHECK(copy.tensor("model.w").to_vector<float>() == std::vector<float>{1, 1});
  CHECK(thrown<InvalidArgument>([&] { all.add("model.", model); }) ==
        "[nn.StateDict] \"model.w\" is there already");
}

TEST_CASE("what a state dict refuses") {
  StateDict dict;
  dict.set("lr", 0.5);
  CHECK(thrown<InvalidArgument>([&] { dict.set("", 1.0); }) ==
        "[nn.StateDict] a value needs a name");
  CHECK(thrown<InvalidArgument>([&] { dict.set(std::string("a\0b", 3), 1.0); }) ==
        "[nn.StateDict] a name has a NUL byte, behind \"a\"");
  CHECK(thrown<InvalidArgument>([&] { dict.set("w", Tensor()); }) ==
        "[nn.StateDict] the tensor \"w\" is undefined");
  CHECK(thrown<InvalidArgument>([&] { dict.number("eps"); }) ==
        "[nn.StateDict] there is no \"eps\" among its 1 entries");
  CHECK(thrown<InvalidArgument>([&] { dict.tensor("lr"); }) ==
        "[nn.StateDict] \"lr\" is of kind number, not tensor");
  CHECK(thrown<InvalidArgument>([&] { dict.integer("lr"); }) ==
        "[nn.StateDict] \"lr\" is of kind number, not integer");
}

}  // namespace
}  // namespace tessera
