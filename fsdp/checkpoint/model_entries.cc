#include "tessera/fsdp/checkpoint/model_entries.h"

#include <string_view>
#include <variant>

#include "tessera/fsdp/state/load_entries.h"

namespace tessera::checkpoint {

ModelEntries::ModelEntries(nn::Module& model, const Index& index) {
  each_tensor(index, kModelPrefix, [this](const StoredTensor& tensor, const std::string& name) {
    const Tensor stand_in = Tensor::empty(tensor.shape, {.dtype = tensor.dtype, .device = kNull});
    on_disk_.emplace(stand_in.storage().id(), &tensor);
    saved_.set(name, stand_in);
  });
  for (const auto& [name, value] : index.values.part(kModelPrefix)) saved_.set(name, value);
  for (const auto& [name, value] : fsdp::before_load(model, saved_)) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) {
      all_.push_back({name, value});
      continue;
    }
    fsdp::TensorEntry entry{.dtype = tensor->dtype(), .shape = tensor->shape(), .tensor = *tensor};
    entry.has_elements = !tensor->device().is_null() || stored_of(*tensor) != nullptr;
    all_.push_back({name, entry});
  }
}

const StoredTensor* ModelEntries::stored(std::size_t entry) const {
  const fsdp::TensorEntry* tensor = all_[entry].tensor();
  return tensor == nullptr ? nullptr : stored_of(tensor->tensor);
}

// A view of a stand-in, which a hook made, stands for nothing on the disk.
const StoredTensor* ModelEntries::stored_of(const Tensor& tensor) const {
  const auto found = on_disk_.find(tensor.storage().id());
  const bool is_stand_in = found != on_disk_.end() && tensor.offset() == 0 &&
                           tensor.shape() == found->second->shape && tensor.is_contiguous();
  return is_stand_in ? found->second : nullptr;
}

}  // namespace tessera::checkpoint
