#include "tessera/fsdp/wrap_policy.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.wrap";

bool is_batch_norm(const nn::Module& module) {
  return dynamic_cast<const nn::BatchNorm1d*>(&module) != nullptr ||
         dynamic_cast<const nn::BatchNorm2d*>(&module) != nullptr;
}

bool lowers_precision(const MixedPrecision& mixed, const nn::Module& module) {
  if (mixed.exempt && mixed.exempt(module)) return false;
  return mixed.param_dtype.has_value() || mixed.buffer_dtype.has_value();
}

void shard(nn::Module& module, const FullyShardOptions& options) { fully_shard(module, options); }
void shard(nn::Module& module, const ReplicateOptions& options) { replicate(module, options); }

// The walk below one model. `Options` are the options of the call that a plain `true` makes.
template <class Options>
class Walk {
 public:
  Walk(const WrapPolicy& policy, const Options& options) : policy_(policy), options_(options) {
    for (const nn::Parameter& parameter : options.ignored_parameters)
      ignored_.insert(parameter.id());
    for (const nn::Module* module : options.ignored_modules) {
      TESSERA_CHECK(module != nullptr, kWhere, "a null module is among the ignored ones");
      ignored_.insert(module);
      for (const nn::Parameter& parameter : module->parameters()) ignored_.insert(parameter.id());
    }
  }

  void below(nn::Module& module, const std::string& name) {
    for (const nn::NamedModule& child : module.children())
      visit(*child.module, name.empty() ? child.name : name + "." + child.name);
  }
  std::vector<nn::Module*> wrapped() && { return std::move(wrapped_); }

 private:
  void visit(nn::Module& module, const std::string& name) {
    if (ignored_.contains(&module) || has_state(module) || !seen_.insert(&module).second) return;
    if (!policy_.is_leaf || !policy_.is_leaf(module)) below(module, name);
    if (module.is_container()) return;
    const WrapAnswer answer = policy_.decide({module, name, free_elements(module)});
    if (const auto* own = std::get_if<FullyShardOptions>(&answer.value())) {
      call(module, *own);
    } else if (const auto* other = std::get_if<ReplicateOptions>(&answer.value())) {
      call(module, *other);
    } else if (is_batch_norm(module) && lowers_precision(options_.mixed_precision, module)) {
      Options full = options_;
      full.mixed_precision = {};
      call(module, full);
    } else if (!answer.is_no()) {
      call(module, options_);
    }
  }

  template <class Given>
  void call(nn::Module& module, const Given& given) {
    const Inherited from{.mesh = options_.mesh,
                         .ignored_parameters = options_.ignored_parameters,
                         .ignored_modules = options_.ignored_modules};
    shard(module, options_inside(module, given, from));
    wrapped_.push_back(&module);
  }

  std::int64_t free_elements(const nn::Module& module) const {
    std::int64_t total = 0;
    for (const nn::Parameter& parameter : module.parameters()) {
      if (parameter.owner() == nullptr && !ignored_.contains(parameter.id()))
        total += parameter.spec().global_shape.numel();
    }
    return total;
  }

  const WrapPolicy& policy_;
  const Options& options_;
  std::set<const void*> ignored_;  // modules, and parameters by id
  std::set<const nn::Module*> seen_;
  std::vector<nn::Module*> wrapped_;
};

void check_policy(const WrapPolicy& policy, const char* where) {
  TESSERA_CHECK(policy.decide != nullptr, where,
                "the policy has no rule; make it with wrap_types, wrap_by_size, wrap_if, "
                "wrap_always or wrap_any_of");
}

template <class Options>
std::vector<nn::Module*> walk(nn::Module& model, const WrapPolicy& policy, const Options& options) {
  check_policy(policy, kWhere);
  TESSERA_CHECK_AS(StateError, !has_state(model), kWhere,
                   "{} is sharded already, and its group holds what is below; apply the policy "
                   "first, then shard the model itself",
                   model.type_name());
  Walk<Options> walk(policy, options);
  walk.below(model, "");
  return std::move(walk).wrapped();
}

}  // namespace

WrapPolicy wrap_by_size(const WrapBySizeOptions& options) {
  TESSERA_CHECK(options.min_elements >= 1, "fsdp.wrap_by_size",
                "min_elements is {}; expected at least 1 (wrap_always() wraps every module)",
                options.min_elements);
  WrapPolicy policy;
  policy.decide = [least = options.min_elements](const WrapCandidate& candidate) -> WrapAnswer {
    return candidate.free_elements >= least;
  };
  policy.is_leaf = options.is_leaf;
  if (!policy.is_leaf) {
    policy.is_leaf = [](const nn::Module& module) {
      return dynamic_cast<const nn::MultiheadAttention*>(&module) != nullptr;
    };
  }
  return policy;
}

WrapPolicy wrap_if(std::function<WrapAnswer(const WrapCandidate&)> function) {
  TESSERA_CHECK(function != nullptr, "fsdp.wrap_if",
                "the function is empty; pass one that decides");
  return {.decide = std::move(function)};
}

WrapPolicy wrap_always() {
  return {.decide = [](const WrapCandidate&) -> WrapAnswer { return true; }};
}

WrapPolicy wrap_any_of(std::vector<WrapPolicy> policies) {
  TESSERA_CHECK(!policies.empty(), "fsdp.wrap_any_of", "no policies were given; pass at least one");
  for (const WrapPolicy& policy : policies) check_policy(policy, "fsdp.wrap_any_of");
  WrapPolicy out;
  out.decide = [policies](const WrapCandidate& candidate) -> WrapAnswer {
    for (const WrapPolicy& policy : policies) {
      WrapAnswer answer = policy.decide(candidate);
      if (!answer.is_no()) return answer;
    }
    return false;
  };
  out.is_leaf = [policies](const nn::Module& module) {
    return std::any_of(policies.begin(), policies.end(), [&module](const WrapPolicy& policy) {
      return policy.is_leaf && policy.is_leaf(module);
    });
  };
  return out;
}

std::vector<nn::Module*> wrap(nn::Module& model, const WrapPolicy& policy,
                              const FullyShardOptions& options) {
  return walk(model, policy, options);
}

std::vector<nn::Module*> wrap_replicate(nn::Module& model, const WrapPolicy& policy,
                                        const ReplicateOptions& options) {
  return walk(model, policy, options);
}

WrapDefaults::WrapDefaults(FullyShardOptions options) : options_(std::move(options)) {
  TESSERA_CHECK_AS(StateError, tessera::detail::thread_state().wrap_defaults == nullptr,
                   "fsdp.WrapDefaults",
                   "there is a scope of defaults on this thread already, and scopes do not nest; "
                   "end it first, or give wrap_here() overrides");
  tessera::detail::thread_state().wrap_defaults = &options_;
}

WrapDefaults::~WrapDefaults() { tessera::detail::thread_state().wrap_defaults = nullptr; }

void detail::wrap_here(nn::Module& module, const WrapOverrides& overrides) {
  const FullyShardOptions* scope_options = tessera::detail::thread_state().wrap_defaults;
  if (scope_options == nullptr) return;
  const std::vector<nn::Module*>& ignored = scope_options->ignored_modules;
  if (std::find(ignored.begin(), ignored.end(), &module) != ignored.end()) return;
  FullyShardOptions options = *scope_options;
  if (overrides) overrides(options);
  fully_shard(module, options_inside(module, options, {}));
}

}  // namespace tessera::fsdp
