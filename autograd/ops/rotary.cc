#include "tessera/tensor/ops/rotary.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"

namespace tessera {

// A rotation: its derivative turns back.
Variable rotary(const Variable& x, const RotaryTable& table, const RotaryOptions& options) {
  return record_twice(
      "rotary", rotary(x.tensor(), table, options), {x},
      [cos = Saved(table.cos, "rotary"), sin = Saved(table.sin, "rotary"), options](
          const Variable& dy, const BackwardContext&) {
        const RotaryOptions back{.pairing = options.pairing, .inverse = !options.inverse};
        return Gradients{rotary(dy, {.cos = cos.unpack(), .sin = sin.unpack()}, back)};
      });
}

}  // namespace tessera
