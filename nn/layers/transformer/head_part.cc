#include "tessera/nn/layers/transformer/head_part.h"

#include "tessera/tensor/random_scope.h"

namespace tessera::nn {

HeadPart head_part(const Parameter& weight, std::int64_t head_dim, std::int64_t query_rows) {
  return {.first = weight.value_spec().boxes.front().offset[0] / head_dim,
          .all = query_rows / head_dim};
}

random::Box probability_box(const Shape& probabilities, const HeadPart& part) {
  random::Box box{.global = probabilities.with(1, part.all),
                  .offset = Shape::filled(probabilities.ndim(), 0).with(1, part.first)};
  box.offset[0] = random::first_sample();
  box.global[0] += random::first_sample();
  return box;
}

}  // namespace tessera::nn
