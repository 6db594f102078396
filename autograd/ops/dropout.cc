#include "tessera/tensor/ops/dropout.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random_scope.h"

namespace tessera {

Variable dropout(const Variable& x, double p, random::Key key, const random::Box& box) {
  return record_twice("dropout", dropout(x.tensor(), p, key, box), {x},
                      [p, key, box](const Variable& dy, const BackwardContext&) {
                        return Gradients{dropout(dy, p, key, box)};
                      });
}

Variable dropout(const Variable& x, const DropoutOptions& options) {
  TESSERA_CHECK(options.p >= 0 && options.p <= 1, "dropout", "p is {}; it must lie in [0, 1]",
                options.p);
  if (!options.training || options.p == 0) return x;
  TESSERA_CHECK(!options.layer.empty(), "dropout",
                "the layer has no name; give one, its random numbers are found by it");
  random::Box box = random::whole(x.shape());
  if (x.ndim() > 0) {
    box.offset[0] = random::first_sample();
    box.global[0] = box.offset[0] + x.dim(0);
  }
  return dropout(x, options.p, random::next_key(options.layer).key(), box);
}

}  // namespace tessera
