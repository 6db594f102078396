#pragma once

/// Initial values. An initializer fills a box of the global parameter; an element's value depends
/// on the key and its global position only, so any sharding of a parameter starts with the same
/// values.

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/tensor/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

class Module;

/// Fills `out`, which is `box` of the global tensor.
using Initializer = std::function<void(const Tensor& out, random::Key key, const random::Box& box)>;

namespace init {
Initializer constant(double value);
Initializer zeros();
Initializer ones();
Initializer uniform(double low, double high);
Initializer normal(double mean, double stddev);
}  // namespace init

struct InitializeOptions {
  std::uint64_t seed = 1;
  std::string prefix = {};  ///< put before every name when keys are made
  Device device = kCpu;
};

/// Allocates every parameter's shard and every buffer on `device` (those not yet allocated) and
/// gives them their initial values, also those that had others: parameter `name` draws from the
/// stream named prefix + name under `seed`. Tied parameters use their first name. Also sets every
/// full name to prefix + name, as errors show it. Throws StateError naming type and position of a
/// parameter, buffer or module that is a member of a module of the tree but was never registered.
void initialize(Module& module, const InitializeOptions& options = {});

/// Initial values again, under another seed or the same, from the streams of the full names that
/// initialize() or a load gave. Throws StateError for a model that is not materialised.
void reinitialize(Module& module, std::uint64_t seed);

}  // namespace tessera::nn
