// A program that includes the header of everything and uses the namespace can still give its own types and functions the names
// that programs of this kind usually have. A clash is an error of the compiler, so most of this test is that it builds.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/tessera.h"

using namespace tessera;

// Types, each at global scope, where an unqualified name that the namespace has too would be ambiguous.
// It would indent each line of the list further than the one before.
// clang-format off
#define DECLARE_TYPES(TYPE) \
  TYPE(Activation) TYPE(Annotation) TYPE(Args) TYPE(Attention) TYPE(Batch) TYPE(Block) \
  TYPE(Buffer) TYPE(Config) TYPE(Dataset) TYPE(Decoder) TYPE(Dims) TYPE(Edge) TYPE(Encoder) \
  TYPE(Event) TYPE(Function) TYPE(Graph) TYPE(Head) TYPE(Layer) TYPE(Loader) TYPE(Logger) \
  TYPE(Loss) TYPE(Metrics) TYPE(Mlp) TYPE(Model) TYPE(Module) TYPE(Net) TYPE(Node) \
  TYPE(Optimizer) TYPE(Options) TYPE(Parameter) TYPE(Reduction) TYPE(ResidualBlock) TYPE(Result) \
  TYPE(Sample) TYPE(Saved) TYPE(Schedule) TYPE(State) TYPE(Storage) TYPE(Stream) TYPE(Task) \
  TYPE(Timer) TYPE(Tokenizer) TYPE(Trace) TYPE(Trainer)
// clang-format on

#define DECLARE(name)       \
  struct name {             \
    const char* is = #name; \
  };
DECLARE_TYPES(DECLARE)

// Functions and variables.
bool all(const std::vector<bool>& flags) {
  for (const bool flag : flags)
    if (!flag) return false;
  return true;
}
bool any(const std::vector<bool>& flags) { return !flags.empty() && !all({!flags.front()}); }
std::string train(const Model& model) { return model.is; }
std::string evaluate(const Model& model, const Dataset& data) {
  return std::string(model.is) + data.is;
}
int load(const std::string& path) { return static_cast<int>(path.size()); }
int save(const std::string& path) { return load(path); }
std::string print(const Config& config) { return config.is; }
int seed = 3, epochs = 2, steps = 5, rank = 1, world_size = 4;
double learning_rate = 0.1, accuracy = 0.5;

namespace {

#define COUNT(name) +1
TEST_CASE("a program may use the namespace and have the usual names for itself") {
  STATIC_REQUIRE((0 DECLARE_TYPES(COUNT)) >= 30);
#define IS_THE_OWN(name) CHECK(std::string(name().is) == #name);
  DECLARE_TYPES(IS_THE_OWN)
  CHECK(train(Model()) + evaluate(Model(), Dataset()) + print(Config()) ==
        "ModelModelDatasetConfig");
  CHECK(save("path") == 4);
  CHECK(seed + epochs + steps + rank + world_size == 15);
  CHECK(learning_rate + accuracy == Approx(0.6));
}

TEST_CASE("the reductions all and any are found by their argument beside the program's own") {
  CHECK(all(std::vector<bool>{true, true}));
  CHECK(any(std::vector<bool>{true}));
  const Tensor x = Tensor::from_vector<float>({0, 1, 2, 0, 3, 4}, {2, 3});
  CHECK_FALSE(all(x).item<bool>());
  CHECK(all(x, {0}).to_vector<bool>() == std::vector<bool>{false, true, true});
  CHECK(any(x, {1}, true).shape() == Shape{2, 1});
}

}  // namespace
