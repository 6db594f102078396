// Buffers: a handle, its place in the model, initialisation, equally constructed models.

#include "tessera/nn/buffer.h"

#include <catch2/catch.hpp>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Buffer;
using testing::thrown;
using testing::values;

class Counted final : public nn::Layer<Counted> {
 public:
  explicit Counted(std::int64_t size = 3)
      : linear_({.in = 2, .out = 2}),
        noise_({.shape = {size}, .dtype = DType::kF64, .init = nn::init::normal(0, 1)}),
        count_(
            {.shape = {}, .dtype = DType::kI64, .init = nn::init::zeros(), .persistent = false}) {
    register_module("linear", linear_);
    register_buffer("noise", noise_);
    register_buffer("count", count_);
  }
  Variable forward(const Variable& x) { return linear_(x); }
  nn::Linear linear_;
  Buffer noise_, count_;
};

class Outer final : public nn::Layer<Outer> {
 public:
  Outer() {
    register_module("a", a_);
    register_module("b", b_);
    register_module("again", a_);
  }
  Counted a_, b_;
};

std::vector<std::string> names(const std::vector<nn::NamedBuffer>& buffers) {
  std::vector<std::string> out;
  for (const auto& named : buffers) out.push_back(named.name);
  return out;
}

TEST_CASE("buffers are listed by qualified name, each once under its first") {
  Outer model;
  CHECK(names(model.named_buffers()) ==
        std::vector<std::string>{"a.noise", "a.count", "b.noise", "b.count"});
  CHECK(names(model.a_.own_buffers()) == std::vector<std::string>{"noise", "count"});
  CHECK(model.own_buffers().empty());
  CHECK(model.parameters().size() == 4);
  CHECK(model.get_buffer("b.noise").same_as(model.b_.noise_));
  CHECK_FALSE(model.b_.count_.is_persistent());
}

TEST_CASE("a buffer has no elements until initialize computes them, from its name's stream") {
  Outer model;
  CHECK(
      thrown<StateError>([&] { model.a_.noise_.tensor(); }) ==
      "[nn.Buffer] buffer \"noise\" of shape [3] has no elements yet: call nn::initialize(model), "
      "or load a checkpoint; if that was done, register its module in the model");
  CHECK_THROWS_AS(model.a_.noise_.reset({.value = 1}), StateError);
  nn::initialize(model, {.seed = 5, .prefix = "m."});
  CHECK(model.a_.noise_.name() == "m.a.noise");
  const Tensor expected = Tensor::empty({3}, {.dtype = DType::kF64});
  random::fill_normal(expected, random::named_key(5, "m.a.noise"), random::whole({3}), 0, 1);
  CHECK(values(model.a_.noise_.tensor()) == values(expected));
  CHECK(values(model.b_.noise_.tensor()) != values(expected));
  CHECK(model.a_.count_.tensor().item<std::int64_t>() == 0);
}

TEST_CASE("reinitialize draws parameters and buffers again; the same seed gives the same") {
  Outer model;
  CHECK_THROWS_AS(nn::reinitialize(model, 5), StateError);
  nn::initialize(model, {.seed = 5, .prefix = "m."});
  const auto noise = values(model.a_.noise_.tensor());
  const auto weight = values(model.b_.linear_.weight().local().tensor());
  const Tensor kept = model.a_.noise_.tensor();
  nn::reinitialize(model, 6);
  CHECK(values(model.a_.noise_.tensor()) != noise);
  CHECK(values(model.b_.linear_.weight().local().tensor()) != weight);
  fill_(model.a_.count_.tensor(), 7);
  nn::reinitialize(model, 5);
  CHECK(values(kept) == noise);  // in place
  CHECK(values(model.b_.linear_.weight().local().tensor()) == weight);
  CHECK(model.a_.count_.tensor().item<std::int64_t>() == 0);
}

TEST_CASE("copy_state copies buffers of every dtype to a reference that has none yet") {
  Outer from, to;
  nn::initialize(from, {.seed = 2});
  fill_(from.b_.count_.tensor(), 41);
  nn::copy_state(from, to);
  CHECK(values(to.b_.noise_.tensor()) == values(from.b_.noise_.tensor()));
  CHECK(to.b_.count_.tensor().item<std::int64_t>() == 41);
  fill_(from.b_.count_.tensor(), 1);
  CHECK(to.b_.count_.tensor().item<std::int64_t>() == 41);
}

TEST_CASE("copy_state writes where the reference is") {
  Outer from, planned;
  nn::initialize(from);
  nn::initialize(planned, {.device = kNull});
  nn::copy_state(from, planned);
  CHECK(planned.b_.noise_.tensor().device() == kNull);
  CHECK(planned.a_.linear_.bias().local().device() == kNull);
  CHECK_THROWS_AS(nn::copy_state(planned, from), StateError);
}

TEST_CASE("copy_state tells all differences, of parameters and buffers, at once") {
  Counted from(3), to(4);
  nn::Linear other({.in = 2, .out = 2});
  CHECK(thrown<InvalidArgument>([&] { nn::copy_state(from, to); }) ==
        "[nn.copy_state] Counted and Counted are not alike: \"noise\" [3] against [4]");
  CHECK(thrown<InvalidArgument>([&] { nn::copy_state(from, other); }) ==
        "[nn.copy_state] Counted and Linear are not alike: \"linear.bias\" only in the source; "
        "\"linear.weight\" only in the source; \"bias\" only in the target; \"weight\" only in the "
        "target; \"count\" only in the source; \"noise\" only in the source");
}

TEST_CASE("what a buffer refuses") {
  CHECK(thrown<InvalidArgument>([] { Buffer({.shape = {2}, .init = nullptr}); }) ==
        "[nn.Buffer] a buffer of shape [2] needs an initializer, for instance init::zeros()");
  CHECK(thrown<InvalidArgument>([] { Buffer({.shape = {-2}, .init = nn::init::zeros()}); }) ==
        "[nn.Buffer] shape [-2] has a negative extent");
  struct Forgetful final : nn::Layer<Forgetful> {
    Forgetful() : mask({.shape = {4}, .init = nn::init::ones()}) {}
    Variable forward(const Variable& x) { return x; }
    Buffer mask;
  };
  Forgetful model;
  const std::string text = thrown<StateError>([&] { nn::initialize(model); });
  CHECK(text.find("Forgetful has a buffer of shape [4] that was never") != std::string::npos);
  CHECK(text.find("call register_buffer in its constructor") != std::string::npos);
  struct Taken final : nn::Layer<Taken> {
    Taken()
        : a({.shape = {1}, .init = nn::init::ones()}), b({.shape = {1}, .init = nn::init::ones()}) {
      register_parameter("x", a);
      register_buffer("x", b);
    }
    nn::Parameter a;
    Buffer b;
  };
  CHECK(thrown<InvalidArgument>([] { Taken(); }) ==
        "[nn.register_buffer] Taken has a member \"x\" already: choose another name");
}

TEST_CASE("members are found by qualified name; a wrong one tells what is there") {
  Outer model;
  CHECK(&model.get_submodule("") == &model);
  CHECK(&model.get_submodule("again.linear") == &model.a_.linear_);
  CHECK(model.get_parameter("again.linear.bias").same_as(model.a_.linear_.bias()));
  CHECK(
      thrown<InvalidArgument>([&] { model.get_submodule("b.lin"); }) ==
      "[nn.get_submodule] there is no \"b.lin\": \"b\" has no child \"lin\"; its children: linear");
  CHECK(
      thrown<InvalidArgument>([&] { model.get_submodule("c"); }) ==
      "[nn.get_submodule] there is no \"c\": Outer has no child \"c\"; its children: a, b, again");
  CHECK(thrown<InvalidArgument>([&] { model.get_parameter("a.noise"); }) ==
        "[nn.get_parameter] there is no \"a.noise\": Counted has no parameter \"noise\"; it has "
        "none");
  CHECK(thrown<InvalidArgument>([&] { model.get_buffer("a.weight"); }) ==
        "[nn.get_buffer] there is no \"a.weight\": Counted has no buffer \"weight\"; it has noise, "
        "count");
  for (const char* name : {".", "a.", ".a", "a..linear"}) {
    INFO(name);
    CHECK_THROWS_AS(model.get_submodule(name), InvalidArgument);
  }
  for (const char* name : {"", "a.", "a.linear..bias", ".a.linear.bias"}) {
    INFO(name);
    CHECK_THROWS_AS(model.get_parameter(name), InvalidArgument);
  }
  CHECK(thrown<InvalidArgument>([&] { model.a_.linear_.get_parameter(".bias"); }) ==
        "[nn.get_parameter] there is no \".bias\": a name does not begin with a dot");
}

}  // namespace
}  // namespace tessera
