#pragma once

/// Sharding by rule: which modules of a model become groups of their own.
///
///     fsdp::wrap(model, fsdp::wrap_types<Block, nn::Embedding>(), {.mesh = world.mesh()});
///     fsdp::fully_shard(model, {.mesh = world.mesh()});     // the rest: always the caller's call
///
/// wrap() makes the calls of fully_shard that one would write by hand, and nothing else. It walks
/// the tree depth first, children from left to right and before their parents, and asks the policy
/// about each module once. It never asks about the model itself, about containers without a
/// forward, nor about what is ignored; and it does not enter modules that have a state already, so
/// calls by hand may come before it, and several policies one after the other.
///
/// All ranks call it alike. Policies count whole parameters, so that all ranks decide alike.

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// What a policy is asked about.
struct WrapCandidate {
  nn::Module& module;
  std::string name;  ///< qualified, within the model
  /// Elements of the parameters at and below it that no group holds yet and nobody ignores, each
  /// parameter once: what its group would hold.
  std::int64_t free_elements = 0;
};

/// What it answers.
class WrapAnswer {
 public:
  /// false: no. true: with the options that wrap() was given.
  template <std::same_as<bool> Bool>
  WrapAnswer(Bool yes) : value_(yes) {}  // NOLINT(*-explicit-*)
  /// By this call, with these options. A mesh left out is wrap()'s; what wrap() was told to ignore
  /// stays ignored.
  WrapAnswer(FullyShardOptions own) : value_(std::move(own)) {}  // NOLINT(*-explicit-*)
  WrapAnswer(ReplicateOptions own) : value_(std::move(own)) {}   // NOLINT(*-explicit-*)

  using Value = std::variant<bool, FullyShardOptions, ReplicateOptions>;
  const Value& value() const { return value_; }
  bool is_no() const { return std::holds_alternative<bool>(value_) && !std::get<bool>(value_); }

 private:
  Value value_;
};

struct WrapPolicy {
  std::function<WrapAnswer(const WrapCandidate&)> decide;  ///< required
  /// True: the walk does not enter the module; it is asked about all the same. Null: never.
  std::function<bool(const nn::Module&)> is_leaf = {};
};

/// Modules of these classes, or derived from them.
template <class... Types>
WrapPolicy wrap_types() {
  static_assert(sizeof...(Types) > 0 && (std::is_polymorphic_v<Types> && ...),
                "wrap_types<Block, nn::Embedding>(): the classes of the modules to wrap");
  return {.decide = [](const WrapCandidate& candidate) -> WrapAnswer {
    return (... || (dynamic_cast<const Types*>(&candidate.module) != nullptr));
  }};
}

struct WrapBySizeOptions {
  std::int64_t min_elements = 100'000'000;  ///< >= 1
  /// Not entered. Null: nn::MultiheadAttention, which reads its projection without calling it.
  std::function<bool(const nn::Module&)> is_leaf = {};
};
/// Modules whose group would hold at least so many elements, after their children were asked.
/// Throws InvalidArgument for fewer than 1.
WrapPolicy wrap_by_size(const WrapBySizeOptions& options = {});

/// Modules of which the function says so. Throws InvalidArgument for an empty one.
WrapPolicy wrap_if(std::function<WrapAnswer(const WrapCandidate&)> function);
/// Every module, also one that has nothing of its own to shard.
WrapPolicy wrap_always();
/// The first answer, in the order given, that is not no. A leaf of one is a leaf for all. Throws
/// InvalidArgument for an empty list, and for a policy without a rule in it.
WrapPolicy wrap_any_of(std::vector<WrapPolicy> policies);

/// Applies the policy below `model`, and answers the modules that got a state, in the order of the
/// calls. Of options.ignored_* each call is given what is inside its module.
///
/// With mixed precision (param_dtype or buffer_dtype of `options`) each batch norm becomes a group
/// of its own without it, whatever the policy says (but for those below a leaf, where the walk does
/// not come), unless that has options of its own for it or
/// options.mixed_precision.exempt names it: statistics need the stored dtype. It takes 16-bit
/// arguments as they are.
///
/// Throws InvalidArgument for a policy without a rule, StateError for a model that has a state
/// itself, and what fully_shard and replicate throw; the calls made before that stand.
std::vector<nn::Module*> wrap(nn::Module& model, const WrapPolicy& policy,
                              const FullyShardOptions& options);
/// The same with calls of replicate.
std::vector<nn::Module*> wrap_replicate(nn::Module& model, const WrapPolicy& policy,
                                        const ReplicateOptions& options);

}  // namespace tessera::fsdp
