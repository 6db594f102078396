// A wrapper that only forwards: the seeds' DummyDDP. Names of the model inside get the prefix
// "module.", which the parity check is told to drop.
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
