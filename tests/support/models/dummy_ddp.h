// A wrapper that only forwards: DummyDDP of PyTorch's FSDP tests. It adds the prefix "module." to
// the names of the model inside; the parity check is told to ignore it.
#pragma once

#include "tessera/nn/layer.h"

namespace tessera::testing {

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
