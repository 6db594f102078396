// For kernels with AVX-512.
#include <omp.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cpu {
namespace {

using dnnl::memory;

// Everything that a primitive depends on.
struct Key {
  std::array<std::int64_t, 9> geometry;  // extents, strides, number of products
  bool from_bf16, to_bf16, bias, adds;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::size_t hash =
        static_cast<std::size_t>(key.from_bf16 + 2 * key.to_bf16 + 4 * key.bias + 8 * key.adds);
    for (std::int64_t value : key.geometry) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

Key key_of(const TileProduct& t) {
  Key key = {.geometry = {t.m, t.n, t.k, t.a.row_stride, t.a.column_stride, t.b.row_stride,
                          t.b.column_stride, t.m == 1 ? t.n : t.c.row_stride, t.count},
             .from_bf16 = t.a.dtype == DType::kBF16,
             .to_bf16 = t.c.dtype == DType::kBF16,
             .bias = t.bias != nullptr,
             .adds = t.beta != 0};
  // A part with an extent of 1 would appear to have gaps.
  settle_strides(t.m, t.k, key.geometry[3], key.geometry[4]);
  settle_strides(t.k, t.n, key.geometry[5], key.geometry[6]);
  return key;
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

// If the system has no memory for generated code, oneDNN writes it to address 0. So more memory
// than the code of a product needs is requested first.
void check_room_for_code() {
  constexpr std::size_t kRoom = std::size_t{16} << 20;
  void* const room =
      mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw OutOfMemory(
        "[matmul] the system has no room for the code of a product (16 MiB); take a smaller model "
        "or batch or fewer ranks, or raise the limit of memory (ulimit -v)");
  munmap(room, kRoom);
}

Primitive::Primitive(const Key& key) {
  check_room_for_code();
  const auto& [m, n, k, a_row, a_column, b_row, b_column, c_row, count] = key.geometry;
  const auto from = key.from_bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto to = key.to_bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto desc_of = [many = count](memory::dims shape, memory::data_type type,
                                      memory::dims strides, bool batched = true) {
    if (many > 1) {
      strides.insert(strides.begin(), shape[0] * shape[1]);
      shape.insert(shape.begin(), batched ? many : 1);
    }
    return memory::desc(shape, type, strides);
  };
  a = desc_of({m, k}, from, {a_row, a_column});
  b = desc_of({k, n}, from, {b_row, b_column});
  c = desc_of({m, n}, to, {c_row, 1});
  if (key.bias) bias = desc_of({1, n}, from, {n, 1}, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.adds) {
    dnnl::post_ops add_to_c;
    add_to_c.append_sum(1);
    attributes.set_post_ops(add_to_c);
  }
  const auto desc = key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc primitive(desc, attributes, engine());
  scratch = primitive.scratchpad_desc();
  run = dnnl::matmul(primitive);
}

// While it lives, signals wait that come from outside, not from an instruction of this thread. oneDNN's
// code for f32 sums of more than 16 KiB / (4 bytes * 48 columns) lets the stack pointer point to a
// buffer on the heap (until version 3.12, its issue 4845): a signal handler would overwrite what
// lies before the buffer.
class HeldSignals {
 public:
  static constexpr std::int64_t kMostOnStack = 84;

  HeldSignals() {
    static const sigset_t held = [] {
      sigset_t set;
      sigfillset(&set);
      for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
        sigdelset(&set, signal);
      return set;
    }();
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

constexpr std::size_t kMostPrimitives = 2048;  // bounded, because the number of sizes is not

// Primitives by key, shared by all threads: creating one generates code.
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
    if (primitives_.size() >= kMostPrimitives) primitives_.clear();
    return primitives_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Primitive>, KeyHash> primitives_;
};

Cache& cache() {
  static auto* const cache = new Cache;
  return *cache;
}

// A primitive with the arguments of one thread; calls change only their addresses. For small tiles,
// creating the arguments takes longer than the product.
class Call {
 public:
  explicit Call(const Key& key)
      : primitive_(cache().get(key)),
        memories_{wrap(primitive_->a), wrap(primitive_->b), wrap(primitive_->c),
                  wrap(primitive_->scratch), key.bias ? wrap(primitive_->bias) : memory()} {
    constexpr std::array kNames = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                   DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    for (std::size_t i = 0; i < kNames.size(); ++i)
      arguments_[i] = {kNames[i], memories_[i].get(/*allow_empty=*/true)};
  }

  void operator()(const TileProduct& t, Workspace scratch) {
    set(0, t.a.data);
    set(1, t.b.data);
    set(2, t.c.data);
    set(3, scratch_of(scratch));
    if (t.bias != nullptr) set(4, t.bias);
    thread_local dnnl::stream stream(engine());
    std::optional<HeldSignals> held;
    if (t.a.dtype == DType::kF32 && t.k > HeldSignals::kMostOnStack) held.emplace();
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_->run.get(), stream.get(),
                                                   t.bias != nullptr ? 5 : 4, arguments_.data()),
                            "could not execute a primitive");
  }

 private:
  static memory wrap(const memory::desc& desc) { return memory(desc, engine(), nullptr); }
  void set(std::size_t i, const void* data) {
    memories_[i].set_data_handle(const_cast<void*>(data));
  }
  // The workspace is an estimate from the shape, because a memory plan for another machine must
  // know it too. If a version of oneDNN needs more, it is allocated here.
  void* scratch_of(Workspace offered) {
    if (primitive_->scratch.get_size() <= offered.bytes) return offered.data;
    if (!own_) own_ = memory(primitive_->scratch, engine());
    return own_.get_data_handle();
  }

  std::shared_ptr<const Primitive> primitive_;
  std::array<memory, 5> memories_;
  memory own_;
  std::array<dnnl_exec_arg_t, 5> arguments_;
};

// oneDNN's bits depend on the number of OpenMP threads that it may use: it uses one.
class OneThreadScope {
 public:
  OneThreadScope() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadScope() { omp_set_num_threads(previous_); }
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  int previous_;
};

Call& call_of(const Key& key) {
  thread_local std::unordered_map<Key, Call, KeyHash> calls;
  const auto found = calls.find(key);
  if (found != calls.end()) return found->second;
  if (calls.size() >= kMostPrimitives) calls.clear();
  return calls.try_emplace(key, key).first->second;
}

}  // namespace

bool multiplies_bf16() {
  static const bool has_it = [] {
    constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
    engine();
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
  }();
  return has_it;
}

void multiply_floats(const TileProduct& t, Workspace scratch) {
  const OneThreadScope one_thread;
  try {
    call_of(key_of(t))(t, scratch);
  } catch (const dnnl::error& error) {
    throw DeviceError("[matmul] oneDNN failed on a tile of " + std::to_string(t.m) + " x " +
                      std::to_string(t.n) + " x " + std::to_string(t.k) + ": " + error.what());
  }
}

}  // namespace tessera::cpu
