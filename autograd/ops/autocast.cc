#include "tessera/autograd/ops/autocast.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/variable_impl.h"
#include "tessera/tensor/check.h"

namespace tessera {
namespace detail {

// Leaves of one scope in the lower dtype.
class AutocastCache {
 public:
  Variable cast_once(const Variable& leaf, DType dtype) {
    Entry& entry = entries_[leaf.impl().get()];
    const std::uint64_t version = leaf.tensor().version();
    if (!entry.cast.defined() || entry.version != version || entry.cast.dtype() != dtype ||
        is_used_up(entry.cast))
      entry = {.leaf = leaf, .cast = cast(leaf, dtype), .version = version};
    return entry.cast;
  }
  void clear() { entries_.clear(); }

 private:
  // A backward pass in a scope inside this one, or on another thread, came through it.
  static bool is_used_up(const Variable& cast) {
    const GradientEdge edge = cast.gradient_edge();
    return edge.node != nullptr && edge.node->is_freed();
  }

  struct Entry {
    Variable leaf;  // kept, so that its address stays its own
    Variable cast;
    std::uint64_t version = 0;
  };
  std::unordered_map<const Variable::Impl*, Entry> entries_;
};

namespace {

thread_local std::shared_ptr<AutocastCache> t_cache;  // null until a cast is kept

bool is_kept(const Variable& x) {
  return grad_enabled() && x.is_leaf() && x.requires_grad() &&
         x.impl()->leaf_state().sink == nullptr;
}

Variable to_dtype(const Variable& x, DType dtype, DType lower) {
  if (x.dtype() == dtype) return x;
  if (dtype != lower || !is_kept(x)) return cast(x, dtype);
  if (!t_cache) t_cache = std::make_shared<AutocastCache>();
  return t_cache->cast_once(x, dtype);
}

bool takes_part(const Variable& x) {
  return x.defined() && x.tensor().defined() && is_floating(x.dtype());
}

}  // namespace

AutocastScope::AutocastScope(std::optional<DType> lower)
    : previous_(std::exchange(thread_state().settings.autocast, lower)),
      previous_cache_(std::exchange(t_cache, nullptr)) {}

AutocastScope::~AutocastScope() {
  thread_state().settings.autocast = previous_;
  t_cache = std::move(previous_cache_);
}

void forget_autocast_casts() {
  if (t_cache) t_cache->clear();
}

void autocast_operands(AutocastClass operands, std::span<Variable> variables) {
  const std::optional<DType> lower = thread_state().settings.autocast;
  const auto first = std::find_if(variables.begin(), variables.end(), takes_part);
  if (first == variables.end() || !lower) return;
  DType target = operands == AutocastClass::kLower ? *lower
                 : operands == AutocastClass::kF32 ? DType::kF32
                                                   : first->dtype();
  if (operands != AutocastClass::kLower) {
    for (const Variable& x : variables) {
      if (takes_part(x)) target = promote(target, x.dtype());
    }
  }
  for (Variable& x : variables) {
    if (takes_part(x)) x = to_dtype(x, target, *lower);
  }
}

}  // namespace detail

std::optional<DType> autocast_dtype() { return detail::thread_state().settings.autocast; }

namespace {

std::optional<DType> checked(std::optional<DType> lower) {
  TESSERA_CHECK(!lower || is_floating(*lower), "autocast",
                "{} is not a floating dtype; use bf16, f16 or f32",
                lower ? dtype_name(*lower) : "none");
  return lower;
}

}  // namespace

AutocastGuard::AutocastGuard(std::optional<DType> lower) : scope_(checked(lower)) {}

}  // namespace tessera
