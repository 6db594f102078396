#include "tessera/models/nets/language_model.h"

#include "tessera/tensor/check.h"

namespace tessera::models {

DecodeCache::DecodeCache(std::int64_t layers, std::int64_t capacity) {
  TESSERA_CHECK(layers >= 1, "models.DecodeCache", "got {} layers; at least 1 is needed", layers);
  for (std::int64_t i = 0; i < layers; ++i)
    layers_.emplace_back(nn::KeyValueCacheOptions{.capacity = capacity});
}

void DecodeCache::clear() {
  for (nn::KeyValueCache& layer : layers_) layer.clear();
}

}  // namespace tessera::models
