#pragma once

// The interface of the models in the sharding tests, so that one training loop serves all. It is
// FSDPTestModel of PyTorch's FSDP tests.
//
// There `init` also shards; here construction, groups() and initialize() are separate, so the
// unsharded reference skips the sharding in the middle:
//
//     NestedWrappedModule model({.dtype = DType::kF64});
//     for (nn::Module* group : model.groups()) ...;      // shard each; skipped for the reference
//     model.initialize({.seed = 0});
//
// init_model<NestedWrappedModule>() makes the unsharded reference in one line. PyTorch's
// `deterministic` (seed 0 before construction) always holds here: equal seeds give equal models, on
// any rank.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/variable.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/module.h"

namespace tessera::testing {

class TestModel {
 public:
  virtual ~TestModel() = default;

  /// The model itself.
  virtual nn::Module& root() = 0;
  /// The input of `rank`: equal at every step, different on each rank. Floating-point inputs have
  /// the model's dtype.
  virtual std::vector<Variable> get_input(Device device, int rank) const = 0;
  /// Calls the model with its hooks.
  virtual Variable call(const std::vector<Variable>& input) = 0;
  virtual Variable get_loss(const std::vector<Variable>& input, const Variable& output) = 0;
  virtual void run_backward(const Variable& loss) { backward(loss); }
  /// nn::initialize, and the model's own additions; before or after sharding.
  virtual void initialize(const nn::InitializeOptions& options) { nn::initialize(root(), options); }
  /// The modules that the recursive mode of PyTorch's FSDP tests wraps, in its order: inner ones
  /// first. If the root is not among them, the caller may shard it afterwards.
  virtual std::vector<nn::Module*> groups() = 0;
};

/// An M with its initial values.
template <class M>
std::unique_ptr<M> init_model(const typename M::Options& options = {},
                              const nn::InitializeOptions& start = {.seed = 0}) {
  auto model = std::make_unique<M>(options);
  model->initialize(start);
  return model;
}

/// Makes a TestModel of any other model: functions give its input, its call and its loss.
template <class M>
struct AdaptedModelOptions {
  using Input = std::vector<Variable>;
  typename M::Options model{};
  std::function<Input(Device device, int rank)> input{};                       ///< required
  std::function<Variable(M& model, const Input& input)> call{};                ///< required
  std::function<Variable(const Input& input, const Variable& output)> loss{};  ///< unset: the sum
                                                                               ///< of the output
  std::function<std::vector<nn::Module*>(M& model)> groups{};                  ///< unset: no groups
};

template <class M>
class AdaptedModel final : public TestModel {
 public:
  using Options = AdaptedModelOptions<M>;
  explicit AdaptedModel(Options options) : options_(std::move(options)), model_(options_.model) {}

  nn::Module& root() override { return model_; }
  std::vector<Variable> get_input(Device device, int rank) const override {
    return options_.input(device, rank);
  }
  Variable call(const std::vector<Variable>& input) override {
    return options_.call(model_, input);
  }
  Variable get_loss(const std::vector<Variable>& input, const Variable& output) override {
    return options_.loss ? options_.loss(input, output) : sum(output);
  }
  std::vector<nn::Module*> groups() override {
    return options_.groups ? options_.groups(model_) : std::vector<nn::Module*>();
  }
  M& model() { return model_; }

 private:
  Options options_;
  M model_;
};

/// A wrapper that only forwards: DummyDDP of PyTorch's FSDP tests. It adds the prefix "module." to
/// the names of the model inside; the parity check is told to ignore it.
template <class M>
class DummyDDP final : public nn::Layer<DummyDDP<M>> {
 public:
  using Options = typename M::Options;
  explicit DummyDDP(const Options& options = {}) : module_(options) {
    this->register_module("module", module_);
  }
  template <class... Args>
  decltype(auto) forward(const Args&... args) {
    return module_(args...);
  }
  M& module() { return module_; }

 private:
  M module_;
};

}  // namespace tessera::testing
