// A state dict as a file: every value comes back bit for bit and in its order, and files that no
// save_state() wrote are read as far as they make sense.
#include "tessera/nn/state/state_file.h"

#include <bit>
#include <catch2/catch.hpp>
#include <limits>

#include "tessera/tensor/io/safetensors.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera {
namespace {

using namespace testing;
using nn::StateDict;
using nn::StateValue;

std::vector<std::string> names(const StateDict& state) {
  std::vector<std::string> out;
  for (const auto& [name, value] : state) out.push_back(name);
  return out;
}

// Kind and bits; of tensors also shape and dtype.
std::string text(const StateValue& value) {
  std::string out = nn::state_value_kind(value);
  if (const auto* flag = std::get_if<bool>(&value)) return out + (*flag ? " true" : " false");
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    return out + " " + std::to_string(*whole);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return out + " " + std::to_string(std::bit_cast<std::uint64_t>(*number));
  }
  if (const auto* words = std::get_if<std::string>(&value)) return out + " " + *words;
  const Tensor& tensor = std::get<Tensor>(value);
  out += std::string(" ") + dtype_name(tensor.dtype()) + " " + tensor.shape().str();
  for (double v : cast(tensor, DType::kF64).to_vector<double>()) out += " " + std::to_string(v);
  return out;
}

void check_same(const StateDict& a, const StateDict& b) {
  CHECK(names(a) == names(b));
  for (const auto& [name, value] : a) {
    INFO(name);
    REQUIRE(b.contains(name));
    CHECK(text(value) == text(*b.find(name)));
  }
}

TEST_CASE("state file: every kind of value comes back, in order") {
  const std::string path = temporary_path("state_file_kinds", "state.safetensors");
  constexpr double kInf = std::numeric_limits<double>::infinity();
  StateDict state;
  state.set("epoch", std::int64_t{3});
  state.set("up.weight", arange(6).view({2, 3}));
  state.set("on", true);
  state.set("off", false);
  for (DType dtype : kAllDTypes) {
    state.set(dtype_name(dtype), cast(Tensor::from_vector<float>({0, 1, 3}, {3}), dtype));
  }
  int i = 0;
  for (double number : {0.1, 1.0, -0.0, 5e-324, 1.7976931348623157e308, kInf, -kInf, 1e21,
                        std::bit_cast<double>(0x7FF8000000000000), 123456789.125,
                        std::bit_cast<double>(0xFFF4000000000123)}) {
    state.set("number." + std::to_string(i++), number);
  }
  state.set("low", std::numeric_limits<std::int64_t>::min());
  state.set("high", std::numeric_limits<std::int64_t>::max());
  state.set("0-d", Tensor::scalar(2.5));
  state.set("none", zeros({0, 3}));
  state.set("schöne \"Namen\"\n", "ein Text mit  Leerzeichen, \"Zeichen\" und \n Ümlauten ");
  state.set("strided", arange(6).view({2, 3}).transpose(0, 1));
  state.set("empty", "");
  nn::save_state(path, state);
  check_same(state, nn::load_state(path));

  nn::save_state(path, StateDict());
  CHECK(nn::load_state(path).empty());
}

TEST_CASE("state file: what it says of values") {
  const std::string path = temporary_path("state_file_text", "state.safetensors");
  StateDict state;
  state.set("w", zeros({2}));
  state.set("lr", 0.001);
  state.set("step", std::int64_t{-7});
  state.set("done", true);
  state.set("nan", std::bit_cast<double>(0x7FF8000000000001));
  state.set("name", "a b");
  nn::save_state(path, state);
  CHECK(SafetensorsFile(path).metadata() ==
        SafetensorsMetadata{{"tessera/lr", "1 number 0.001"},
                            {"tessera/step", "2 integer -7"},
                            {"tessera/done", "3 bool true"},
                            {"tessera/nan", "4 number nan:7ff8000000000001"},
                            {"tessera/name", "5 text a b"}});
}

TEST_CASE("state file: tensors that share elements are written once each") {
  const std::string path = temporary_path("state_file_shared", "state.safetensors");
  const Tensor shared = arange(3);
  StateDict state;
  state.set("a", shared);
  state.set("b", shared);
  nn::save_state(path, state);
  const StateDict back = nn::load_state(path);
  check_same(state, back);
  CHECK_FALSE(back.tensor("a").storage() == back.tensor("b").storage());
}

TEST_CASE("state file: from tensors that are made when they are written") {
  const std::string path = temporary_path("state_from", "a.safetensors"),
                    other = temporary_path("state_whole", "a.safetensors");
  StateDict whole, plan;
  whole.set("a", Tensor::from_vector<float>({1, 2, 3}, {3}));
  whole.set("n", std::int64_t{4});
  whole.set("large", cast(arange(1'500'000), DType::kI32));
  whole.set("flag", true);
  for (const auto& [name, value] : whole) {
    if (const Tensor* tensor = std::get_if<Tensor>(&value))
      plan.set(name, Tensor::empty(tensor->shape(), {.dtype = tensor->dtype(), .device = kNull}));
    else
      plan.set(name, value);
  }
  std::vector<std::string> asked;
  save_state_from(path, plan, [&](const std::string& name) {
    asked.push_back(name);
    return whole.tensor(name);
  });
  CHECK(asked == std::vector<std::string>{"a", "large"});
  save_state(other, whole);
  CHECK(read_bytes(path) == read_bytes(other));
  CHECK(thrown<InvalidArgument>([&] {
          save_state_from(path, plan, [&](const std::string&) { return whole.tensor("a"); });
        }) == "[write_safetensors] the source of \"large\", i32 [1500000], returned f32 [3]");
  CHECK(read_bytes(path) == read_bytes(other));
  CHECK_THAT(thrown<StateError>([&] { save_state(path, plan); }), Catch::Contains("null device"));
}

TEST_CASE("state file: a file of another program") {
  const std::string path = temporary_path("state_file_foreign", "state.safetensors");
  write_safetensors(path, {{"b", zeros({2})}, {"a", ones({1})}}, {{"format", "pt"}});
  CHECK(names(nn::load_state(path)) == std::vector<std::string>{"b", "a"});
  // Another program may have dropped tensors and sorted the metadata.
  write_safetensors(path, {{"b", zeros({2})}, {"a", ones({1})}},
                    {{"tessera/z", "1 integer 1"},
                     {"tessera/last", "99 integer 2"},
                     {"tessera/first", "0 bool true"},
                     {"tessera/reference", "1 integer 3"}});
  CHECK(names(nn::load_state(path)) ==
        std::vector<std::string>{"first", "z", "reference", "b", "a", "last"});
}

TEST_CASE("state file: on the null device a file gives a plan") {
  const std::string path = temporary_path("state_file_null", "state.safetensors");
  StateDict state;
  state.set("w", zeros({2, 3}, {.dtype = DType::kBF16}));
  state.set("step", std::int64_t{5});
  nn::save_state(path, state);
  const StateDict plan = nn::load_state(path, {.device = kNull});
  CHECK(plan.tensor("w").device().is_null());
  CHECK(plan.tensor("w").shape() == Shape{2, 3});
  CHECK(plan.integer("step") == 5);
  CHECK(thrown<StateError>([&] { nn::save_state(path, plan); }) ==
        "[write_safetensors] tensor \"w\" of shape [2, 3] is on the null device and has no values: "
        "a plan cannot be saved");
}

TEST_CASE("state file: values that cannot be written, files that cannot be read") {
  const std::string path = temporary_path("state_file_errors", "state.safetensors");
  StateDict state;
  state.set("name", "\xFF");
  CHECK(thrown<InvalidArgument>([&] { nn::save_state(path, state); }) ==
        "[write_safetensors] metadata \"tessera/name\": \"0 text \\ufffd\" is not UTF-8; encode "
        "binary data as text");
  CHECK(thrown<CheckpointError>([&] { nn::load_state(path); }) ==
        "[SafetensorsFile] cannot open \"" + path + "\": No such file or directory");

  write_bytes(path, safetensors_bytes(R"({"x":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                                      std::string(1, '\0')));
  CHECK(thrown<CheckpointError>([&] { nn::load_state(path); }) ==
        "[SafetensorsFile] tensor \"x\" of \"" + path +
            "\" has dtype I8, which Tessera has not: convert it where it was made");

  write_safetensors(path, {{"", zeros({1})}});
  CHECK(thrown<CheckpointError>([&] { nn::load_state(path); }) ==
        "[nn.load_state] \"" + path + "\" has a tensor without a name");
  write_safetensors(path, {{"a", zeros({1})}}, {{"tessera/a", "1 bool true"}});
  CHECK(thrown<CheckpointError>([&] { nn::load_state(path); }) ==
        "[nn.load_state] \"" + path + "\" has a tensor and a value that are both called \"a\"");
}

TEST_CASE("state file: parts of sharded tensors are refused, and the file that was there stays") {
  const std::string path = temporary_path("state_file_parts", "state.safetensors");
  StateDict state;
  state.set("up.weight", full({2, 3}, 1));
  state.set("up.bias", full({2}, 1));
  state.set("scale", full({1}, 1));
  nn::save_state(path, state);
  state.set("up.weight", full({2, 3}, 2));
  state.mark_part("up.weight", {.global_shape = {5, 3}, .boxes = {}, .sharded_axes = {"data"}});
  state.mark_part("up.bias", {.global_shape = {5}, .boxes = {}, .sharded_axes = {"data"}});
  CHECK(thrown<InvalidArgument>([&] { nn::save_state(path, state); }) ==
        "[nn.save_state] \"" + path +
            "\" would hold parts of 2 sharded tensors (\"up.weight\" is this rank's [2, 3] of "
            "[5, 3]); call fsdp::full_state_dict(model), or fsdp::full_optimizer_state(optimizer), "
            "on all ranks, and save the result on rank 0");
  CHECK(nn::load_state(path).tensor("up.weight").to_vector<float>() == std::vector<float>(6, 1));
}

TEST_CASE("state file: values that no save wrote") {
  const std::string path = temporary_path("state_file_values", "state.safetensors");
  const auto reading = [&](const std::string& value, const std::string& key = "tessera/a") {
    write_safetensors(path, {}, {{key, value}});
    return thrown<CheckpointError>([&] { nn::load_state(path); });
  };
  const auto refused = [&](const std::string& value, const std::string& key = "tessera/a") {
    return "[nn.load_state] \"" + path + "\": metadata \"" + key + "\" is \"" + value +
           "\", which is not the place, kind and text of a value";
  };
  for (const std::string value : {"",
                                  "0",
                                  "0 bool",
                                  "x bool true",
                                  "-1 bool true",
                                  "0 bool yes",
                                  "0 bool ",
                                  "0 integer 1.5",
                                  "0 integer ",
                                  "0 integer 9223372036854775808",
                                  "0 integer 1 ",
                                  "0 number x",
                                  "0 number ",
                                  "0 number 1e999",
                                  "0 number nan",
                                  "0 number nan:",
                                  "0 number nan:7ff0000000000000",
                                  "0 number nan:17ff8000000000000",
                                  "0 tensor x",
                                  "0  bool true",
                                  "0 Bool true",
                                  "99999999999999999999 bool true"}) {
    CHECK(reading(value) == refused(value));
  }
  CHECK(reading("0 bool true", "tessera/") == refused("0 bool true", "tessera/"));
  CHECK(reading("0 text ") == "nothing was thrown");
}

}  // namespace
}  // namespace tessera
