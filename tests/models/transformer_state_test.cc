// State dicts of the small Transformer: the tied weight is saved once and loads from any of its
// names.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/close.h"

namespace tessera::models {
namespace {

using testing::all_equal;

constexpr const char* kFirst = "tok_embeddings.weight";
constexpr const char* kSecond = "output.weight";

Tensor logits(Transformer& model) {
  model.eval();
  return model(arange(8).view({1, 8})).tensor();
}

TEST_CASE("a tied weight is saved once, under its first name") {
  Transformer tied, untied({.weight_tying = false});
  nn::initialize(tied, {.seed = 3});
  nn::initialize(untied, {.seed = 3});
  const nn::StateDict state = nn::state_dict(tied);
  CHECK(state.size() == 28);
  CHECK(state.contains(kFirst));
  CHECK_FALSE(state.contains(kSecond));
  CHECK(nn::state_dict(untied).size() == 29);
}

TEST_CASE("a tied weight is loaded from its first name, its second, or both where they are equal") {
  Transformer model;
  nn::initialize(model, {.seed = 3});
  nn::StateDict state = nn::state_dict(model);
  const Tensor weight = state.tensor(kFirst);
  const std::string which = GENERATE("first", "second", "both");
  if (which != "first") state.set(kSecond, clone(weight));
  if (which == "second") state.erase(kFirst);
  Transformer loaded({.checkpoint_activations = true});
  nn::load_state_dict(loaded, state);
  CHECK(all_equal(loaded.get_parameter(kSecond).local().tensor(), weight));
  CHECK(all_equal(logits(loaded), logits(model)));
}

TEST_CASE("a tied weight that stands twice with unlike elements is refused") {
  Transformer model;
  nn::initialize(model, {.seed = 3});
  nn::StateDict state = nn::state_dict(model);
  const Tensor other = clone(state.tensor(kFirst));
  fill_(other.select(0, 0), 7);
  state.set(kSecond, other);
  const Tensor before = logits(model);
  CHECK_THROWS_AS(nn::load_state_dict(model, state), InvalidArgument);
  CHECK(all_equal(logits(model), before));
}

}  // namespace
}  // namespace tessera::models
