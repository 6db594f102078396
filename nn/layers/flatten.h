#pragma once

/// Several dims as one, and one as several, as layers. No copy where the layout allows it.
///
///     Flatten: x [samples, 3, 4, 5] -> y [samples, 60]
///     Unflatten({.dim = 1, .extents = {3, 20}}): x [samples, 60] -> y [samples, 3, 20]
///
/// Any dtype that a Variable has. Errors are those of the operations flatten and unflatten. Left
/// out of PyTorch's Unflatten: named dims.

#include "tessera/nn/layer.h"

namespace tessera::nn {

struct FlattenOptions {
  int first = 1;  ///< dims [first, last] become one; negative ones count from the back
  int last = -1;
};

class Flatten final : public Layer<Flatten> {
 public:
  using Options = FlattenOptions;
  explicit Flatten(const FlattenOptions& options = {}) : options_(options) {}

  Variable forward(const Variable& x);

 private:
  FlattenOptions options_;
};

struct UnflattenOptions {
  int dim = 1;    ///< negative ones count from the back
  Shape extents;  ///< what it becomes; required. One extent may be -1: what is left for it
};

class Unflatten final : public Layer<Unflatten> {
 public:
  using Options = UnflattenOptions;
  /// Throws InvalidArgument without extents.
  explicit Unflatten(const UnflattenOptions& options);

  Variable forward(const Variable& x);

 private:
  UnflattenOptions options_;
};

/// y = x: takes a layer's place in a container. PyTorch's takes any arguments and ignores them;
/// ours takes none.
class Identity final : public Layer<Identity> {
 public:
  Variable forward(const Variable& x) { return x; }
};

}  // namespace tessera::nn
