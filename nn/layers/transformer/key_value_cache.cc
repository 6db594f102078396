#include "tessera/nn/layers/transformer/key_value_cache.h"

#include <algorithm>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.KeyValueCache";
constexpr int kPositions = 2;  // the dim that grows

void check_new(const char* name, const Variable& x, const Tensor& held) {
  TESSERA_CHECK_AS(StateError, !x.requires_grad(), kWhere,
                   "the new {} require gradients, and a cache keeps no history: decode in a "
                   "NoGradGuard",
                   name);
  if (!held.defined()) return;
  const Shape expected = held.shape().with(kPositions, x.dim(kPositions));
  TESSERA_CHECK(x.shape() == expected && x.dtype() == held.dtype() && x.device() == held.device(),
                kWhere, "the new {} are {} {} on {}, those before need {} {} on {}: clear() it",
                name, dtype_name(x.dtype()), x.shape().str(), x.device().str(),
                dtype_name(held.dtype()), expected.str(), held.device().str());
}

// `held` with room for `room` positions, of which the first `length` are kept.
Tensor grown(const Tensor& held, const Tensor& like, std::int64_t length, std::int64_t room) {
  const Tensor out = empty(like.shape().with(kPositions, room), like.options());
  if (length > 0) copy_(out.narrow(kPositions, 0, length), held.narrow(kPositions, 0, length));
  return out;
}

}  // namespace

KeyValueCache::KeyValueCache(const KeyValueCacheOptions& options) : capacity_(options.capacity) {
  TESSERA_CHECK(options.capacity >= 1, kWhere, "capacity is {}; it must be at least 1",
                options.capacity);
}

void KeyValueCache::append(const Variable& keys, const Variable& values) {
  TESSERA_CHECK(keys.ndim() == 4 && values.ndim() == 4 &&
                    keys.shape().without(3) == values.shape().without(3),
                kWhere,
                "expected keys and values [batch, heads, positions, dim] that differ in dim only, "
                "got {} and {}",
                keys.shape().str(), values.shape().str());
  check_new("keys", keys, keys_);
  check_new("values", values, values_);
  const std::int64_t added = keys.dim(kPositions), length = length_ + added;
  const std::int64_t room = keys_.defined() ? keys_.dim(kPositions) : 0;
  if (!keys_.defined() || length > room) {
    const std::int64_t wanted = std::max({capacity_, 2 * room, length});
    keys_ = grown(keys_, keys.tensor(), length_, wanted);
    values_ = grown(values_, values.tensor(), length_, wanted);
  }
  copy_(keys_.narrow(kPositions, length_, added), keys.tensor());
  copy_(values_.narrow(kPositions, length_, added), values.tensor());
  length_ = length;
}

Variable KeyValueCache::keys() const {
  return keys_.defined() ? Variable(keys_.narrow(kPositions, 0, length_)) : Variable();
}

Variable KeyValueCache::values() const {
  return keys_.defined() ? Variable(values_.narrow(kPositions, 0, length_)) : Variable();
}

void KeyValueCache::clear() {
  keys_ = values_ = {};
  length_ = 0;
}

}  // namespace tessera::nn
