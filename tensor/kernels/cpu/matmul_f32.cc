#include <array>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cpu/matmul_tile.h"

namespace tessera::cpu {
namespace {

using dnnl::memory;

// Everything that a primitive is made for: extents, strides, factors, bias.
struct Key {
  std::array<std::int64_t, 8> geometry;
  std::array<float, 2> factors;
  bool bias;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::size_t hash = key.bias ? 1 : 0;
    const auto mix = [&](std::size_t value) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    };
    for (std::int64_t value : key.geometry) mix(static_cast<std::size_t>(value));
    for (float value : key.factors) mix(std::hash<float>{}(value));
    return hash;
  }
};

Key key_of(const TileProduct<float>& t) {
  return {.geometry = {t.m, t.n, t.k, t.a.row_stride, t.a.column_stride, t.b.row_stride,
                       t.b.column_stride, t.c.row_stride},
          .factors = {static_cast<float>(t.alpha), static_cast<float>(t.beta)},
          .bias = t.bias != nullptr};
}

// Never destroyed: threads may still compute while the process exits.
const dnnl::engine& engine() {
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

struct Primitive {
  explicit Primitive(const Key& key);
  memory::desc a, b, c, bias, scratch;
  dnnl::matmul run;
};

Primitive::Primitive(const Key& key) {
  const auto& [m, n, k, a_row, a_column, b_row, b_column, c_row] = key.geometry;
  constexpr auto kF32 = memory::data_type::f32;
  a = memory::desc({m, k}, kF32, memory::dims{a_row, a_column});
  b = memory::desc({k, n}, kF32, memory::dims{b_row, b_column});
  c = memory::desc({m, n}, kF32, memory::dims{c_row, 1});
  if (key.bias) bias = memory::desc({1, n}, kF32, memory::dims{n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.factors[0] != 1) attributes.set_output_scales(0, {key.factors[0]});
  if (key.factors[1] != 0) {
    dnnl::post_ops add_to_c;
    add_to_c.append_sum(key.factors[1]);
    attributes.set_post_ops(add_to_c);
  }
  const auto desc = key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc primitive(desc, attributes, engine());
  scratch = primitive.scratchpad_desc();
  run = dnnl::matmul(primitive);
}

// Primitives by key, for all threads: making one generates code. Bounded, since factors and sizes
// may vary endlessly.
class Cache {
 public:
  std::shared_ptr<const Primitive> get(const Key& key) {
    {
      std::lock_guard lock(mutex_);
      const auto found = primitives_.find(key);
      if (found != primitives_.end()) return found->second;
    }
    auto made = std::make_shared<const Primitive>(key);
    std::lock_guard lock(mutex_);
    if (primitives_.size() >= kMost) primitives_.clear();
    return primitives_.emplace(key, std::move(made)).first->second;
  }

 private:
  static constexpr std::size_t kMost = 2048;
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Primitive>, KeyHash> primitives_;
};

Cache& cache() {
  static auto* const cache = new Cache;
  return *cache;
}

memory wrap(const memory::desc& desc, const void* data) {
  return memory(desc, engine(), const_cast<void*>(data));
}

// The workspace is an estimate from the shape, because a plan for another machine must know it too;
// a version of oneDNN that wants more gets it here.
void* scratch_of(const Primitive& primitive, Workspace offered) {
  if (primitive.scratch.get_size() <= offered.bytes) return offered.data;
  thread_local memory own;
  own = memory(primitive.scratch, engine());
  return own.get_data_handle();
}

}  // namespace

void multiply(const TileProduct<float>& t, Workspace scratch) {
  try {
    const std::shared_ptr<const Primitive> primitive = cache().get(key_of(t));
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, wrap(primitive->a, t.a.data)},
        {DNNL_ARG_WEIGHTS, wrap(primitive->b, t.b.data)},
        {DNNL_ARG_DST, wrap(primitive->c, t.c.data)},
        {DNNL_ARG_SCRATCHPAD, wrap(primitive->scratch, scratch_of(*primitive, scratch))}};
    if (t.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, wrap(primitive->bias, t.bias));
    thread_local dnnl::stream stream(engine());
    primitive->run.execute(stream, arguments);
  } catch (const dnnl::error& error) {
    throw DeviceError("[matmul] oneDNN failed on a tile of " + std::to_string(t.m) + " x " +
                      std::to_string(t.n) + " x " + std::to_string(t.k) + ": " + error.what());
  }
}

}  // namespace tessera::cpu
