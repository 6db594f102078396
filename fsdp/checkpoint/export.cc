#include "tessera/fsdp/checkpoint/export.h"

#include "tessera/fsdp/checkpoint/model_entries.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/check.h"

namespace tessera::checkpoint {

void export_model(const std::string& folder, const std::string& path) {
  StoredCheckpoint stored(folder);
  nn::StateDict state;
  each_tensor(
      stored.index(), kModelPrefix, [&](const StoredTensor& tensor, const std::string& name) {
        state.set(name, Tensor::empty(tensor.shape, {.dtype = tensor.dtype, .device = kNull}));
      });
  for (const auto& [name, value] : stored.index().values.part(kModelPrefix)) state.set(name, value);
  TESSERA_CHECK(!state.empty(), "checkpoint.export_model",
                "\"{}\" has no model: it was saved without one", folder);
  nn::save_state_from(path, state, [&](const std::string& name) {
    const StoredTensor& tensor = *stored.find(kModelPrefix + name);
    Tensor whole = Tensor::empty(tensor.shape, {.dtype = tensor.dtype, .device = kCpu});
    stored.read(tensor, {.offset = Shape::filled(tensor.shape.ndim(), 0), .extent = tensor.shape},
                whole);
    return whole;
  });
}

}  // namespace tessera::checkpoint
