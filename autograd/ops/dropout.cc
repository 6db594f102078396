// The forms of dropout.
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/nn.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tensor/random_scope.h"

namespace tessera {
namespace {

// Whether something is dropped. Throws InvalidArgument for options without a meaning.
bool drops(const char* where, const DropoutOptions& options) {
  TESSERA_CHECK(options.p >= 0 && options.p <= 1, where, "p is {}; it must lie in [0, 1]",
                options.p);
  if (!options.training || options.p == 0) return false;
  TESSERA_CHECK(!options.layer.empty(), where,
                "the layer has no name; give one, its random numbers are found by it");
  return true;
}

// All of x, whose first dim counts samples.
random::Box box_of(const Shape& shape) {
  random::Box box = random::whole(shape);
  if (shape.ndim() > 0) {
    box.offset[0] = random::first_sample();
    box.global[0] = box.offset[0] + shape[0];
  }
  return box;
}

// Ones, dropped: 1 / (1 - p) or 0.
Tensor kept(const Shape& shape, const Variable& x, const DropoutOptions& options) {
  const Tensor ones_of_x = ones(shape, {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  return dropout(ones_of_x, options.p, random::next_key(options.layer).key(), box_of(shape));
}

// A derivative of dropout, of any order: all keep the elements that the first one kept.
struct Dropped {
  std::optional<SavedTensor> mask;  // none on a GPU
  double p;
  random::Key key;
  random::Box box;

  Variable again(const Variable& dy) const {
    const Tensor kept = mask ? mask->unpack() : Tensor();
    return record_twice(
        "dropout", dropout_backward(dy.tensor(), kept, p, key, box), {dy},
        [*this](const Variable& ddx, const BackwardContext&) { return Gradients{again(ddx)}; });
  }
};

}  // namespace

Variable dropout(const Variable& x, double p, random::Key key, const random::Box& box) {
  const VariableRef inputs[] = {x};
  if (!detail::is_recording(InputList(std::span(inputs))))
    return detail::unrecorded("dropout", dropout(x.tensor(), p, key, box));
  DropoutResult result = dropout_with_mask(x.tensor(), p, key, box);
  Dropped dropped{.mask = {}, .p = p, .key = key, .box = box};
  if (result.mask.defined()) dropped.mask.emplace(result.mask, "dropout");
  return record_twice("dropout", std::move(result.output), {x},
                      [dropped = std::move(dropped)](const Variable& dy, const BackwardContext&) {
                        return Gradients{dropped.again(dy)};
                      });
}

Variable dropout(const Variable& x, const DropoutOptions& options) {
  if (!drops("dropout", options)) return x;
  return dropout(x, options.p, random::next_key(options.layer).key(), box_of(x.shape()));
}

Variable dropout2d(const Variable& x, const DropoutOptions& options) {
  constexpr const char* kWhere = "dropout2d";
  TESSERA_CHECK(x.ndim() >= 3, kWhere,
                "needs an input [samples, channels, ...] of at least 3 dims, got shape {}",
                x.shape().str());
  if (!drops(kWhere, options)) return x;
  const Shape channels = Shape::filled(x.ndim(), 1).with(0, x.dim(0)).with(1, x.dim(1));
  return cast(mul(x, Variable(kept(channels, x, options))), x.dtype());
}

Variable alpha_dropout(const Variable& x, const DropoutOptions& options) {
  if (!drops("alpha_dropout", options)) return x;
  if (options.p == 1) return mul(x, 0);
  constexpr double kDropped = -1.7580993408473766;  // -scale alpha of selu
  const double a = 1 / std::sqrt((1 - options.p) * (1 + options.p * kDropped * kDropped));
  const double b = -a * kDropped * options.p;
  const Tensor keep = ne(kept(x.shape(), x, options), 0);
  const Variable wide = cast(x, compute_dtype(x.dtype()));
  return cast(where(keep, add(mul(wide, a), b), a * kDropped + b), x.dtype());
}

}  // namespace tessera
