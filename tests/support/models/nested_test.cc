// The nested models: names, groups, values, gradients, what is frozen, the expert that differs.

#include "tessera/tests/support/models/nested.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/models/plain.h"
#include "tessera/tests/support/models/test_model.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {
namespace {

using Names = std::vector<std::string>;

Names linears(const Names& layers) {
  Names out;
  for (const std::string& layer : layers) {
    out.push_back("module." + layer + ".weight");
    out.push_back("module." + layer + ".bias");
  }
  return out;
}

// The layers one after another.
Rows plain_forward(NestedModel& model, const Names& layers, Rows x) {
  for (const std::string& layer : layers) x = plain_linear(model, "module." + layer, x);
  return x;
}

void check_values_and_gradients(NestedModel& model, const Names& layers) {
  const std::vector<Variable> input = model.get_input(kCpu, 2);
  REQUIRE(input.at(0).shape() == Shape{4, 8});
  const Rows expected = plain_forward(model, layers, rows_of(input[0].tensor()));
  const Variable output = model.call(input);
  CHECK(distance(rows_of(output.tensor()), expected) < 1e-13);
  double total = 0;
  for (const auto& row : expected) {
    for (const double value : row) total += value;
  }
  CHECK(model.get_loss(input, output).item<double>() == Approx(total));
  const GradCheckResult result =
      parameter_grad_check(model, [&] { return model.get_loss(input, model.call(input)); });
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("a nested model has the seed's layers, names and groups") {
  const Names layers = {"0", "1.0", "1.1", "2", "3"};
  const auto model = init_model<NestedWrappedModule>({.dtype = DType::kF64});
  CHECK(parameter_names(*model) == linears(layers));
  CHECK(module_names(*model) == Names{"", "module", "module.0", "module.1", "module.1.0",
                                      "module.1.1", "module.2", "module.3"});
  CHECK(names_of(*model, model->groups()) == Names{"module.1.0", "module.1", "module.2"});
  CHECK(elements(*model) == 36 + 80 + 272 + 68 + 40);
  check_values_and_gradients(*model, layers);
}

TEST_CASE("the always-wrapped model is the same with a group for each module, inner ones first") {
  const auto model = init_model<AlwaysWrapNestedWrappedModule>({.dtype = DType::kF64});
  CHECK(model->type_name() == "AlwaysWrapNestedWrappedModule");
  CHECK(names_of(*model, model->groups()) == Names{"module.0", "module.1.0", "module.1.1",
                                                   "module.1", "module.2", "module.3", "module",
                                                   ""});
  const auto plain = init_model<NestedWrappedModule>({.dtype = DType::kF64});
  const std::vector<Variable> input = plain->get_input(kCpu, 0);
  CHECK(all_equal(model->call(input).tensor(), plain->call(input).tensor()));
}

TEST_CASE("the model with few trainable parameters freezes all but its last layer") {
  const Names layers = {"0", "1.0", "1.1", "2.0", "2.1"};
  const auto model = init_model<NonUniformReqGradNWM>({.dtype = DType::kF64});
  CHECK(parameter_names(*model) == linears(layers));
  CHECK(names_of(*model, model->groups()) == Names{"module.1.0", "module.1", "module.2"});
  check_values_and_gradients(*model, layers);

  const std::vector<Variable> input = model->get_input(kCpu, 0);
  nn::optim::SGD optimizer(model->parameters(), {.lr = 0.1});
  std::vector<Tensor> before;
  for (const nn::Parameter& parameter : model->parameters()) {
    before.push_back(clone(parameter.local().tensor()));
  }
  model->run_backward(model->get_loss(input, model->call(input)));
  optimizer.step();
  std::size_t i = 0;
  for (const auto& [name, parameter] : model->named_parameters()) {
    const bool trained = name.starts_with("module.2.1.");
    INFO(name);
    CHECK(parameter.requires_grad() == trained);
    CHECK(parameter.grad().defined() == trained);
    CHECK(bool(all_equal(parameter.local().tensor(), before[i++])) == !trained);
  }
}

TEST_CASE("inputs depend on the rank alone, and have the model's dtype") {
  const NestedWrappedModule model({.dtype = DType::kBF16});
  const auto input = [&model](int rank) { return model.get_input(kCpu, rank)[0].tensor(); };
  CHECK(input(0).dtype() == DType::kBF16);
  CHECK(all_equal(input(3), input(3)));
  CHECK_FALSE(all_equal(input(0), input(1)));
  for (const double value : cast(input(0), DType::kF64).to_vector<double>()) {
    CHECK((value >= 0 && value <= 1));
  }
}

// One of four ranks; the sum over the other three is 10 for each element.
struct FourRanks final : nn::Mesh {
  explicit FourRanks(int rank) : here(rank) {}
  const std::vector<std::string>& axes() const override { return names; }
  int size(const std::string&) const override { return 4; }
  int rank(const std::string&) const override { return here; }
  void all_reduce(const Tensor& tensor, const std::string& axis, nn::MeshReduce op) const override {
    CHECK(axis == "data");
    CHECK(op == nn::MeshReduce::kSum);
    add_(tensor, 10);
    ++reduced;
  }
  Tensor all_gather(const Tensor& tensor, const std::string&) const override { return tensor; }
  Tensor reduce_scatter(const Tensor& tensor, const std::string&) const override { return tensor; }
  Tensor all_to_all(const Tensor& tensor, const std::string&, const nn::RowCounts&) const override {
    return tensor;
  }

  std::vector<std::string> names = {"data"};
  int here;
  mutable int reduced = 0;
};

MixtureOfExpertsOptions on_rank(int rank) {
  return {.mesh = std::make_shared<FourRanks>(rank), .dtype = DType::kF64};
}

TEST_CASE("a mixture of experts has the seed's layers, and an expert that is marked") {
  const Names layers = {"0", "1", "2", "3"};
  const auto model = init_model<MixtureOfExperts>({.dtype = DType::kF64});
  CHECK(parameter_names(*model) == linears(layers));
  CHECK(names_of(*model, model->groups()) == Names{"module.2", "module.1"});
  CHECK(model->num_expert_params() == 23 * 12 + 12);
  for (const auto& [name, parameter] : model->named_parameters()) {
    CHECK(parameter.has_tag("expert") == name.starts_with("module.2."));
  }
  CHECK(elements(*model) == 108 + 299 + 288 + 104);
  check_values_and_gradients(*model, layers);
}

TEST_CASE("only the expert starts differently on each rank") {
  const auto first = init_model<MixtureOfExperts>(on_rank(0));
  const auto second = init_model<MixtureOfExperts>(on_rank(1));
  const auto again = init_model<MixtureOfExperts>(on_rank(1));
  for (const auto& [name, parameter] : first->named_parameters()) {
    INFO(name);
    const Tensor values = second->get_parameter(name).local().tensor();
    CHECK(bool(all_equal(parameter.local().tensor(), values)) == !parameter.has_tag("expert"));
    CHECK(all_equal(again->get_parameter(name).local().tensor(), values));
  }
}

TEST_CASE("unsharded, all gradients but the expert's become the mean over the ranks") {
  const MixtureOfExpertsOptions options = on_rank(2);
  const auto model = init_model<MixtureOfExperts>(options);
  const std::vector<Variable> input = model->get_input(kCpu, 2);
  backward(model->get_loss(input, model->call(input)));
  std::vector<Rows> own;
  for (nn::Parameter& parameter : model->parameters()) {
    own.push_back(rows_of(parameter.grad()));
    parameter.zero_grad();
  }
  model->get_parameter("module.0.bias").set_requires_grad(false);
  model->run_backward(model->get_loss(input, model->call(input)));
  CHECK(static_cast<const FourRanks&>(*options.mesh).reduced == 5);
  std::size_t i = 0;
  for (const auto& [name, parameter] : model->named_parameters()) {
    Rows expected = own[i++];
    if (name == "module.0.bias") continue;
    if (!parameter.has_tag("expert")) {
      for (auto& row : expected) {
        for (double& value : row) value = value / 4 + 10;
      }
    }
    INFO(name);
    CHECK(distance(rows_of(parameter.grad()), expected) < 1e-12);
  }
}

TEST_CASE("delays take time and change nothing") {
  using Delayed = ModuleWithDelay<NestedWrappedModule>;
  const auto prompt = init_model<Delayed>({.model = {.dtype = DType::kF64}});
  const auto late =
      init_model<Delayed>({.model = {.dtype = DType::kF64}, .delay_after_loss_ms = 30});
  CHECK(parameter_names(*late).front() == "module.module.0.weight");
  CHECK(late->get_parameter("module.module.0.weight").name() == "module.module.0.weight");
  CHECK(names_of(late->module(), late->groups()) == Names{"module.1.0", "module.1", "module.2"});
  const std::vector<Variable> input = late->get_input(kCpu, 1);
  CHECK(all_equal(input[0].tensor(), prompt->module().get_input(kCpu, 1)[0].tensor()));
  const auto milliseconds = [&input](Delayed& model) {
    const auto start = std::chrono::steady_clock::now();
    model.run_backward(model.get_loss(input, model.call(input)));
    const std::chrono::duration<double, std::milli> passed =
        std::chrono::steady_clock::now() - start;
    return passed.count();
  };
  milliseconds(*prompt);
  CHECK(milliseconds(*late) >= 30);
  for (const auto& [name, parameter] : late->named_parameters()) {
    CHECK(all_equal(parameter.grad(), prompt->get_parameter(name).grad()));
  }
}

TEST_CASE("a delayed mixture of experts keeps its expert's own start") {
  using Delayed = ModuleWithDelay<MixtureOfExperts>;
  const auto first = init_model<Delayed>({.model = on_rank(0)});
  const auto second = init_model<Delayed>({.model = on_rank(1)});
  const auto value = [](Delayed& model, const std::string& name) {
    return model.get_parameter(name).local().tensor();
  };
  CHECK(
      all_equal(value(*first, "module.module.1.weight"), value(*second, "module.module.1.weight")));
  CHECK_FALSE(
      all_equal(value(*first, "module.module.2.weight"), value(*second, "module.module.2.weight")));
}

TEST_CASE("a wrapper that only forwards prefixes names and gives the same values") {
  DummyDDP<NestedWrappedModule> wrapper({.dtype = DType::kF64});
  wrapper.module().initialize({.seed = 0});
  const auto plain = init_model<NestedWrappedModule>({.dtype = DType::kF64});
  CHECK(parameter_names(wrapper).front() == "module.module.0.weight");
  const Variable x = plain->get_input(kCpu, 0)[0];
  CHECK(all_equal(wrapper(x).tensor(), (*plain)(x).tensor()));
}

}  // namespace
}  // namespace tessera::testing
