#include "tessera/nn/optim/gather_rows.h"

#include <algorithm>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

// The axes that hold different rows, outermost first.
std::vector<std::string> sharded_axes(const Parameter& parameter) {
  const std::vector<std::string>& names = parameter.spec().sharded_axes;
  std::vector<std::string> out;
  for (const std::string& axis : parameter.mesh()->axes()) {
    if (std::find(names.begin(), names.end(), axis) != names.end()) out.push_back(axis);
  }
  return out;
}

// What gathered chunks would put elsewhere than the spec says.
void check_is_chunk(const Parameter& parameter, const std::vector<std::string>& axes,
                    std::int64_t chunk) {
  const ShardSpec& spec = parameter.spec();
  const Shape& global = spec.global_shape;
  std::int64_t place = 0, chunks = 1;
  for (const std::string& axis : axes) {
    place = place * parameter.mesh()->size(axis) + parameter.mesh()->rank(axis);
    chunks *= parameter.mesh()->size(axis);
  }
  bool fits = spec.boxes.size() == 1 && chunk * chunks >= global[0];
  if (fits) {
    const ShardBox& box = spec.boxes.front();
    fits = box.extent == global.with(0, box.extent[0]) &&
           box.extent[0] == std::clamp<std::int64_t>(global[0] - place * chunk, 0, chunk) &&
           (box.extent[0] == 0 || box.offset[0] == place * chunk);
  }
  TESSERA_CHECK(fits, "nn.optim",
                "\"{}\" of shape {} is not sharded in chunks of {} rows in rank order, of which "
                "this rank's would be number {}: shard it over dim 0, or leave it to an optimizer "
                "that works element by element",
                parameter.name(), global.str(), chunk, place);
}

}  // namespace

Tensor gather_rows(const Parameter& parameter, const Tensor& rows) {
  if (parameter.spec().is_whole()) return rows;
  const std::vector<std::string> axes = sharded_axes(parameter);
  const std::int64_t chunk = parameter.padded_local().dim(0);
  check_is_chunk(parameter, axes, chunk);
  Tensor out = zeros(rows.shape().with(0, chunk), rows.options());
  copy_(out.slice(0, 0, rows.dim(0)), rows);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    out = parameter.mesh()->all_gather(out, *axis);
  }
  return out.slice(0, 0, parameter.spec().global_shape[0]);
}

Tensor own_rows(const Parameter& parameter, const Tensor& whole) {
  if (parameter.spec().is_whole()) return whole;
  const ShardBox& box = parameter.spec().boxes.front();
  return whole.narrow(0, box.extent[0] == 0 ? 0 : box.offset[0], box.extent[0]);
}

}  // namespace tessera::nn::optim
