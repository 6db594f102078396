// A test model whose stream is delayed after the loss: ModuleWithDelay of PyTorch's FSDP tests, for
// tests in which a missing wait changes the numbers. NestedWrappedModuleWithDelay is
// ModuleWithDelay<NestedWrappedModule>.
//
// PyTorch's other delay, before gradients are reduced, does not belong to the model here. Give it
// to the group that reduces: distributed::delay(group, CollectiveKind::kReduceScatter, ms). Initial
// values are drawn by full names, including "module.", so the reference without delays is the same
// class with a delay of 0.
#pragma once

#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

template <class M>
struct ModuleWithDelayOptions {
  typename M::Options model = {};
  double delay_after_loss_ms = 0;
};

// An M named "module"; it implements all of TestModel.
template <class M>
class ModuleWithDelay final : public nn::Layer<ModuleWithDelay<M>>, public TestModel {
 public:
  using Options = ModuleWithDelayOptions<M>;
  explicit ModuleWithDelay(const Options& options = {})
      : module_(options.model), delay_after_loss_ms_(options.delay_after_loss_ms) {
    this->register_module("module", module_);
  }
  Variable forward(const std::vector<Variable>& input) { return module_.call(input); }

  nn::Module& root() override { return *this; }
  std::vector<Variable> get_input(Device device, int rank) const override {
    return module_.get_input(device, rank);
  }
  Variable call(const std::vector<Variable>& input) override { return (*this)(input); }
  /// The delay follows the loss on its stream, so backward runs after it.
  Variable get_loss(const std::vector<Variable>& input, const Variable& output) override {
    Variable loss = module_.get_loss(input, output);
    if (delay_after_loss_ms_ > 0) {
      stream_sleep(current_stream(loss.device()), delay_after_loss_ms_);
    }
    return loss;
  }
  void run_backward(const Variable& loss) override { module_.run_backward(loss); }
  void initialize(const nn::InitializeOptions& options) override {
    nn::InitializeOptions inner = options;
    inner.prefix += "module.";
    module_.initialize(inner);
  }
  std::vector<nn::Module*> groups() override { return module_.groups(); }

  M& module() { return module_; }

 private:
  M module_;
  double delay_after_loss_ms_;
};

}  // namespace tessera::testing
