#pragma once

/// Sharding while a model is built: a scope holds the options, and constructors choose the modules.
///
///     Net::Net() : up_({...}), down_({...}) {
///       register_module("up", fsdp::wrap_here(up_));        // a group, if there is a scope
///       register_module("down", down_);                     // its parent's
///     }
///     ...
///     const fsdp::WrapDefaults scope({.mesh = world.mesh()});
///     Net net;                                              // the same class, sharded
///     fsdp::fully_shard(net, {.mesh = world.mesh()});
///
/// Outside a scope wrap_here() does nothing, so one class serves both uses. Constructors of inner
/// modules run before those of outer ones, which is the order that sharding needs.

#include <functional>

#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// Until the end of the scope, wrap_here() on this thread shards with these options. Nesting scopes
/// throws StateError.
class WrapDefaults {
 public:
  explicit WrapDefaults(FullyShardOptions options);
  ~WrapDefaults();
  WrapDefaults(const WrapDefaults&) = delete;
  WrapDefaults& operator=(const WrapDefaults&) = delete;

 private:
  FullyShardOptions options_;
};

/// Changes a copy of the scope's options for one module.
using WrapOverrides = std::function<void(FullyShardOptions&)>;

namespace detail {
void wrap_here(nn::Module& module, const WrapOverrides& overrides);
}  // namespace detail

/// Calls fully_shard with the options of this thread's scope. Does nothing outside a scope, or if
/// the scope ignores the module. Returns the module. Throws the errors of fully_shard.
///
///     wrap_here(head_, [](auto& options) { options.reshard_after_forward = false; })
template <class M>
M& wrap_here(M& module, const WrapOverrides& overrides = {}) {
  detail::wrap_here(module, overrides);
  return module;
}

}  // namespace tessera::fsdp
