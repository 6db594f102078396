#pragma once

/// The keys and values that attention has seen, so that a sequence is decoded a few positions at a
/// time: each call projects the new positions only and attends to all of them.
///
///     NoGradGuard no_grad;
///     nn::KeyValueCache cache({.capacity = 256});
///     for (...) y = attention(x_new, nn::AttentionForwardOptions{.is_causal = true,
///                                                                .cache = &cache}).output;
///
/// One cache for each attention layer and running batch. It keeps values and no history, so it is
/// for decoding and not for training. Used by the thread of its rank.

#include <cstdint>

#include "tessera/autograd/variable.h"

namespace tessera::nn {

struct KeyValueCacheOptions {
  /// Positions that the first append makes room for; when they are used up, room is doubled.
  std::int64_t capacity = 64;
};

class KeyValueCache {
 public:
  /// Throws InvalidArgument for a capacity below 1.
  explicit KeyValueCache(const KeyValueCacheOptions& options = {});

  /// Adds positions at the end: keys [batch, kv heads, positions, dim], values [batch, kv heads,
  /// positions, value dim]. Throws StateError when one of them requires gradients; InvalidArgument
  /// when they do not fit each other, or differ from those before in more than the positions.
  void append(const Variable& keys, const Variable& values);

  /// All positions so far, in the shapes above: views into the cache, valid until the next append.
  /// Undefined before the first append.
  Variable keys() const;
  Variable values() const;
  std::int64_t length() const { return length_; }
  /// Forgets all positions, and the memory.
  void clear();

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  Tensor keys_;  // [batch, kv heads, room, dim]
  Tensor values_;
};

}  // namespace tessera::nn
