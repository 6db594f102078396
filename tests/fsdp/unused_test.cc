// Parameters that only some ranks use, or none: gradients stay undefined or are zeros as declared,
// only trainable rows are sent, and undeclared differences between ranks fail quickly on all of
// them.

#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kDim = 5;

/// Three layers of one group; forward calls those in `use`, for example "ac".
class Choice final : public nn::Layer<Choice> {
 public:
  Choice() {
    for (const char* name : {"a", "b", "c"}) {
      layers_.push_back(std::make_unique<nn::Linear>(
          nn::LinearOptions{.in = kDim, .out = kDim, .dtype = DType::kF64}));
      register_module(name, *layers_.back());
    }
  }
  Variable forward(Variable x) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (use.find(static_cast<char>('a' + i)) != std::string::npos) x = add(x, (*layers_[i])(x));
    }
    return x;
  }
  std::string use = "abc";

 private:
  std::vector<std::unique_ptr<nn::Linear>> layers_;
};

/// Number of input elements of this rank's reduce-scatters.
std::int64_t reduced_elements(const ExecutionTrace& trace) {
  std::int64_t out = 0;
  for (const CollectiveRecord& record : records_of(trace, "reduce_scatter")) {
    for (const CollectiveMember& member : record.members) out += member.elements_in;
  }
  return out;
}
std::int64_t padded(const RankTest& t, std::int64_t rows, std::int64_t columns) {
  return (rows + t.size() - 1) / t.size() * t.size() * columns;
}

TESSERA_RANK_TEST(
    "fsdp unused: what nobody uses, or is frozen, neither travels nor gets a gradient", "[fsdp]") {
  Choice model;
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(2, kDim, DType::kF64, 1));
  model.use = "ac";
  nn::Parameter frozen = model.get_parameter("c.weight");
  frozen.set_requires_grad(false);
  for (int round = 0; round < 2; ++round) {
    const ExecutionTrace trace = traced(t, [&] { backward(local_loss(model(x))); });
    const std::int64_t expected =
        t.size() == 1 ? 0 : padded(t, kDim, kDim) + padded(t, kDim, 1) + padded(t, kDim, 1);
    t.check(reduced_elements(trace) == expected, "{} elements are reduced, expected {}",
            reduced_elements(trace), expected);
    for (const nn::NamedParameter& named : model.named_parameters()) {
      const bool has = named.name.front() == 'a' || named.name == "c.bias";
      t.check(named.parameter.grad().defined() == has, "{} {} a gradient", named.name,
              has ? "lacks" : "has");
    }
  }
}

void zero_grads(nn::Module& model) {
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
}

/// Rank 0 does not use b, and no rank uses c. If declared, gradients are zeros where other ranks
/// have gradients, and undefined where no rank has one.
void check_declared(RankTest& t, Choice& model, const std::string& what) {
  Choice reference;
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  const Tensor x = random_rows(2, kDim, DType::kF64, 1);
  for (int round = 0; round < 2; ++round) {
    model.use = t.rank() == 0 ? "a" : "ab";
    backward(mul(local_loss(model(Variable(x))), 0.5));
    for (int rank = 0; rank < t.size(); ++rank) {
      reference.use = rank == 0 ? "a" : "ab";
      backward(mul(local_loss(reference(Variable(x))), 0.5 / t.size()));
    }
    const std::string difference =
        compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "{}, round {}: {}", what, round, difference);
  }
  const Tensor weight = model.get_parameter("c.weight").grad();
  t.check(!weight.defined(), "{}: a parameter that nobody uses has a gradient", what);
  // With an existing gradient, zeros are added and it stays.
  zero_grads(model);
  zero_grads(reference);
  model.use = reference.use = "abc";
  backward(local_loss(model(Variable(x))));
  backward(local_loss(reference(Variable(x))));
  model.use = reference.use = "a";
  backward(local_loss(model(Variable(x))));
  backward(local_loss(reference(Variable(x))));
  const std::string difference =
      compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
  t.check(difference.empty(), "{}, gradients of before: {}", what, difference);
}

TESSERA_RANK_TEST("fsdp unused: zeros where set_reduce_scatter_unused_params asks for them",
                  "[fsdp]") {
  Choice sharded, replicated;
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()}).set_reduce_scatter_unused_params(true);
  check_declared(t, sharded, "fully_shard");
  fsdp::replicate(replicated, {.mesh = t.world().mesh()}).set_reduce_scatter_unused_params(true);
  check_declared(t, replicated, "replicate");
}

TESSERA_RANK_TEST("fsdp unused: parameters tagged optional are treated so always", "[fsdp]") {
  Choice model;
  for (nn::NamedParameter& named : model.named_parameters()) {
    if (named.name.front() != 'a') named.parameter.add_tag("optional");
  }
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  check_declared(t, model, "optional");
}

TESSERA_RANK_TEST_WITH("fsdp unused: zeros with replicas beside shards", "[fsdp]",
                       {.worlds = {4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     t.world().device());
  Choice model;
  fsdp::fully_shard(model, {.mesh = mesh}).set_reduce_scatter_unused_params(true);
  check_declared(t, model, "HSDP");
}

TESSERA_RANK_TEST_WITH("fsdp unused: one use before the all-reduce counts when it comes", "[fsdp]",
                       {.worlds = {4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     t.world().device());
  Choice model;
  const fsdp::Handle handle = fsdp::fully_shard(model, {.mesh = mesh});
  handle.set_reduce_scatter_unused_params(true);
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(2, kDim, DType::kF64, 1));
  handle.set_requires_all_reduce(false);
  model.use = t.rank() == 3 ? "ab" : "a";  // b: used by one rank of one replica
  backward(local_loss(model(x)));
  handle.set_requires_all_reduce(true);
  model.use = "a";
  backward(local_loss(model(x)));
  t.check(model.get_parameter("b.weight").grad().defined(), "the gradient of b is lost");
  t.check(!model.get_parameter("c.weight").grad().defined(), "c has a gradient that nobody gave");
  const Tensor whole = distributed::full_grad(model.get_parameter("b.weight"));
  double sum = 0;
  for (const double each : whole.to_vector<double>()) sum += std::abs(each);
  t.check(sum > 0, "the gradient of b is zero");
}

TESSERA_RANK_TEST("fsdp: what was collected before a freeze is reduced all the same", "[fsdp]") {
  Choice model;
  const fsdp::Handle handle = fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(2, kDim, DType::kF64, 1));
  handle.set_requires_gradient_sync(false);
  backward(local_loss(model(x)));
  handle.set_requires_gradient_sync(true);
  nn::Parameter weight = model.get_parameter("b.weight");
  weight.set_requires_grad(false);
  backward(local_loss(model(x)));
  t.check(weight.grad().defined(), "the first gradient is lost");
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();  // nothing is pending
}

/// Each rank gets an error that names both sets, within two seconds; it ends the run. Ranks compare
/// on their CPU stream, whatever the device.
void check_divergence(RankTest& t, Choice& model) {
  nn::initialize(model, {.seed = 1});
  model.use = t.rank() == 0 ? "ab" : "ac";
  const auto start = std::chrono::steady_clock::now();
  std::string text = "nothing was thrown";
  std::exception_ptr thrown;
  try {
    backward(local_loss(model(Variable(random_rows(2, kDim, DType::kF64, 1)))));
    current_stream(kCpu).synchronize();
    current_stream(default_device()).synchronize();
  } catch (const CollectiveError& error) {
    text = error.what();
    thrown = std::current_exception();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  t.check(took.count() < 2, "it took {} s", took.count());
  for (const char* name : {"b.weight", "b.bias", "c.weight", "c.bias"})
    t.check(text.find(name) != std::string::npos, "\"{}\" is missing in: {}", name, text);
  if (thrown) std::rethrow_exception(thrown);
}

TESSERA_RANK_TEST_WITH("fsdp unused: ranks that use different parameters fail everywhere", "[fsdp]",
                       ({.worlds = {2, 3, 5}, .expect_failure = "without b.weight, b.bias"})) {
  Choice model;
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  check_divergence(t, model);
}

TESSERA_RANK_TEST_WITH("fsdp unused: so they do when replicated", "[fsdp]",
                       ({.worlds = {2, 3}, .expect_failure = "without b.weight, b.bias"})) {
  Choice model;
  fsdp::replicate(model, {.mesh = t.world().mesh()});
  check_divergence(t, model);
}

TESSERA_RANK_TEST_WITH("fsdp unused: so they do with compute queued", "[fsdp]",
                       ({.worlds = {2, 3},
                         .cpu_compute = StreamKind::kQueued,
                         .expect_failure = "without b.weight, b.bias"})) {
  Choice model;
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  check_divergence(t, model);
}

TESSERA_RANK_TEST_WITH("fsdp unused: unchecked ranks that differ fail by the deadline", "[fsdp]",
                       ({.worlds = {2},
                         .timeout = std::chrono::seconds(2),
                         .checked = false,
                         .expect_failure = "without",
                         .skip_with_nccl = "gives NCCL counts that differ: undefined there"})) {
  Choice model;
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  model.use = t.rank() == 0 ? "a" : "ab";
  const auto start = std::chrono::steady_clock::now();
  std::exception_ptr thrown;
  try {
    backward(local_loss(model(Variable(random_rows(2, kDim, DType::kF64, 1)))));
  } catch (const Error& error) {
    t.check(std::string(error.what()).find("root without") != std::string::npos, "{}",
            error.what());
    thrown = std::current_exception();
  }
  t.check(thrown != nullptr, "nothing was thrown");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  t.check(took.count() < 4, "it took {} s", took.count());
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace
}  // namespace tessera::testing
