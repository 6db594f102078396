#include "tessera/tensor/memory/stream_pool.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>

namespace tessera {
namespace {

constexpr std::size_t kLinearBytes = 1024;
constexpr std::size_t kLinearStep = 64;
constexpr int kLinearClasses = kLinearBytes / kLinearStep;
constexpr int kStepsPerDoubling = 8;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAlwaysKept = std::size_t{256} << 20;
// A pool reports its cached bytes to the process's totals in steps of this size, because small
// pieces come and go all the time.
constexpr std::ptrdiff_t kReportStep = std::ptrdiff_t{64} << 10;

struct Totals {
  std::atomic<std::size_t> from_system{0};
  std::atomic<std::ptrdiff_t> kept{0};  // without the bytes that pools have not reported yet
  std::atomic<std::size_t> peak_in_use{0};
  std::atomic<std::size_t> bound{0};
  std::mutex pools_mutex;  // locked before the mutex of any pool
  std::vector<StreamPool*> pools;
};

// Never destroyed: blocks in static variables are returned after main() has ended.
Totals& totals() {
  static auto* instance = new Totals;
  return *instance;
}

std::size_t alignment_of(std::size_t bytes) { return bytes >= 4096 ? 256 : 64; }

// Page faults of fresh memory cost more than most kernels; huge pages make them few.
char* with_huge_pages(char* begin, std::size_t bytes) {
  madvise(begin, bytes, MADV_HUGEPAGE);
  return begin;
}

char* map_anonymous(void* address, std::size_t bytes, int flags) {
  void* mapped = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
                      /*fd=*/-1, /*offset=*/0);
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

// A mapping that starts on a huge page; the excess before and after is unmapped.
char* map_anywhere(std::size_t bytes) {
  char* begin = map_anonymous(nullptr, bytes + kHugePage, 0);
  if (begin == nullptr) return nullptr;
  const std::size_t before =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + bytes, kHugePage - before);
  return with_huge_pages(begin + before, bytes);
}

// A mapping that ends at `end`; null if something is there already.
char* map_below(char* end, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(end) <= bytes) return nullptr;
  char* const begin = end - bytes;
  char* const mapped = map_anonymous(begin, bytes, MAP_FIXED_NOREPLACE);
  if (mapped == nullptr) return nullptr;
  if (mapped == begin) return with_huge_pages(begin, bytes);
  munmap(mapped, bytes);  // a kernel that does not know the flag
  return nullptr;
}

bool reserve(std::size_t bytes) {
  Totals& t = totals();
  const std::size_t bound = t.bound.load(std::memory_order_relaxed);
  const std::size_t before = t.from_system.fetch_add(bytes);
  if (bound == 0 || (bytes <= bound && before <= bound - bytes)) return true;
  t.from_system.fetch_sub(bytes);
  return false;
}

// What `allocate` returns, which may be null, within the bound.
template <class Allocate>
void* take_from_system(std::size_t bytes, const Allocate& allocate) {
  if (!reserve(bytes)) return nullptr;
  void* data = allocate();
  if (data == nullptr) totals().from_system.fetch_sub(bytes);
  return data;
}

void* take_small(std::size_t bytes) {
  return take_from_system(bytes, [&] {
    void* data = nullptr;
    return posix_memalign(&data, alignment_of(bytes), bytes) == 0 ? data : nullptr;
  });
}

// Part of a mapping, of several, or one.
void unmap(void* data, std::size_t bytes) noexcept {
  // A process that has too many mappings cannot split one, but its pages can still be returned.
  if (munmap(data, bytes) != 0) madvise(data, bytes, MADV_DONTNEED);
  totals().from_system.fetch_sub(bytes);
}

void return_to_system(void* data, std::size_t bytes) noexcept {
  if (bytes >= kMappedBytes) return unmap(data, bytes);
  std::free(data);
  totals().from_system.fetch_sub(bytes);
}

/// Cached bytes, to within one reporting step for each pool.
std::size_t kept_roughly() {
  return static_cast<std::size_t>(
      std::max<std::ptrdiff_t>(0, totals().kept.load(std::memory_order_relaxed)));
}

void note_taken() {
  Totals& t = totals();
  const std::size_t kept = kept_roughly();
  const std::size_t from_system = t.from_system.load(std::memory_order_relaxed);
  const std::size_t in_use = from_system > kept ? from_system - kept : 0;
  std::size_t peak = t.peak_in_use.load(std::memory_order_relaxed);
  while (in_use > peak && !t.peak_in_use.compare_exchange_weak(peak, in_use)) {
  }
}

void evict_everywhere(std::size_t bytes) noexcept {
  const std::lock_guard lock(totals().pools_mutex);
  for (StreamPool* pool : totals().pools) {
    const std::size_t freed = pool->evict(bytes);
    if (freed >= bytes) return;
    bytes -= freed;
  }
}

}  // namespace

int size_class_of(std::size_t bytes) {
  if (bytes <= kLinearBytes) {
    return static_cast<int>((std::max<std::size_t>(bytes, 1) - 1) / kLinearStep);
  }
  const int exponent = std::bit_width(bytes - 1) - 1;  // 2^exponent < bytes <= 2^(exponent + 1)
  const std::size_t base = std::size_t{1} << exponent;
  const std::size_t step = base / kStepsPerDoubling;
  const int steps = static_cast<int>((bytes - base + step - 1) / step);
  return kLinearClasses + (exponent - 10) * kStepsPerDoubling + steps - 1;
}

std::size_t size_class_bytes(int size_class) {
  if (size_class < kLinearClasses) return (static_cast<std::size_t>(size_class) + 1) * kLinearStep;
  const int above = size_class - kLinearClasses;
  const std::size_t base = kLinearBytes << (above / kStepsPerDoubling);
  return base + base / kStepsPerDoubling * static_cast<std::size_t>(above % kStepsPerDoubling + 1);
}

CpuMemory cpu_memory() {
  Totals& t = totals();
  const std::lock_guard lock(t.pools_mutex);
  std::ptrdiff_t kept = t.kept.load();
  for (const StreamPool* pool : t.pools) kept += pool->unreported();
  return {.from_system = t.from_system.load(),
          .kept = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, kept))};
}

void set_cpu_memory_bound(std::size_t bytes) { totals().bound.store(bytes); }

void release_kept_cpu_memory() {
  evict_everywhere(std::numeric_limits<std::size_t>::max());
  malloc_trim(0);
}

StreamPool::StreamPool() {
  const std::lock_guard lock(totals().pools_mutex);
  totals().pools.push_back(this);
}

StreamPool::~StreamPool() {
  retire();
  const std::lock_guard lock(totals().pools_mutex);
  std::erase(totals().pools, this);
}

StreamPool& StreamPool::shared() {
  static auto* pool = new StreamPool;
  return *pool;
}

StreamPool::Piece StreamPool::take(int size_class) {
  Piece piece;
  {
    const std::lock_guard lock(lock_);
    if (out_++ == 0) self_ = weak_from_this().lock();
    if (!pop(size_class, &piece)) piece.data = nullptr;
  }
  if (piece.data == nullptr) piece = take_elsewhere(size_class);
  if (piece.data != nullptr) {
    note_taken();
  } else {
    put_down();
  }
  return piece;
}

StreamPool::Piece StreamPool::take_elsewhere(int size_class) {
  Piece piece;
  {
    const std::lock_guard lock(shared().lock_);
    if (shared().pop(size_class, &piece)) return piece;
  }
  const std::size_t bytes = size_class_bytes(size_class);
  const auto from_system = [&] {
    return bytes >= kMappedBytes ? map_more(bytes) : take_small(bytes);
  };
  piece = {.data = from_system(), .size_class = size_class};
  if (piece.data == nullptr) {
    release_kept_cpu_memory();
    piece.data = from_system();
  }
  return piece;
}

/// Large pieces only. What is free at the lowest address is used too, if the new mapping can be just below.
void* StreamPool::map_more(std::size_t bytes) {
  FreeRanges::Range edge;
  {
    const std::lock_guard lock(lock_);
    edge = ranges_.remove_at(lowest_);
    count_kept(-static_cast<std::ptrdiff_t>(edge.bytes));
  }
  void* data = nullptr;
  const std::size_t missing = bytes - std::min(bytes, edge.bytes);
  if (edge.begin != nullptr && missing > 0)
    data = take_from_system(missing, [&] { return map_below(edge.begin, missing); });
  const bool below = data != nullptr;
  if (!below) data = take_from_system(bytes, [&] { return map_anywhere(bytes); });
  const std::lock_guard lock(lock_);
  if (!below) add_free(edge);
  if (data != nullptr) lowest_ = static_cast<char*>(data);
  return data;
}

/// Undoes the count of a piece for which there was no memory.
void StreamPool::put_down() noexcept {
  std::shared_ptr<StreamPool> last;  // destroyed after the lock is released
  const std::lock_guard lock(lock_);
  if (--out_ == 0) last.swap(self_);
}

bool StreamPool::pop(int size_class, Piece* piece) {
  if (pop_of_class(size_class, piece)) return true;
  const std::size_t bytes = size_class_bytes(size_class);
  if (bytes < kMappedBytes) return false;
  void* data = ranges_.take(bytes);
  if (data == nullptr) {
    join_large();
    data = ranges_.take(bytes);
  }
  if (data == nullptr) return false;
  *piece = {.data = data, .size_class = size_class};
  count_kept(-static_cast<std::ptrdiff_t>(bytes));
  return true;
}

bool StreamPool::pop_of_class(int size_class, Piece* piece) {
  const int last = std::min(size_class + 1, kSizeClasses - 1);
  for (int candidate = size_class; candidate <= last; ++candidate) {
    auto& list = kept_[static_cast<std::size_t>(candidate)];
    if (list.empty()) continue;
    *piece = {.data = list.back().data, .size_class = candidate};
    list.pop_back();
    count_kept(-static_cast<std::ptrdiff_t>(size_class_bytes(candidate)));
    return true;
  }
  return false;
}

void StreamPool::push(Piece piece, std::uint64_t returned_at) {
  kept_[static_cast<std::size_t>(piece.size_class)].push_back({piece.data, returned_at});
  count_kept(static_cast<std::ptrdiff_t>(size_class_bytes(piece.size_class)));
}

void StreamPool::add_free(FreeRanges::Range range) {
  ranges_.add(range);
  count_kept(static_cast<std::ptrdiff_t>(range.bytes));
}

/// Not as soon as pieces are returned: the one returned last is in a CPU's cache, and is reused first as long as
/// classes match.
void StreamPool::join_large() {
  for (int size_class = size_class_of(kMappedBytes); size_class < kSizeClasses; ++size_class) {
    auto& list = kept_[static_cast<std::size_t>(size_class)];
    for (; !list.empty(); list.pop_back()) {
      const Kept& kept = list.back();
      ranges_.add({static_cast<char*>(kept.data), size_class_bytes(size_class), kept.returned_at});
    }
  }
}

void StreamPool::count_kept(std::ptrdiff_t bytes) {
  unreported_ += bytes;
  if (unreported_ < kReportStep && unreported_ > -kReportStep) return;
  totals().kept.fetch_add(std::exchange(unreported_, 0));
}

std::ptrdiff_t StreamPool::unreported() const {
  const std::lock_guard lock(lock_);
  return unreported_;
}

void StreamPool::give_back(Piece piece) noexcept {
  std::shared_ptr<StreamPool> last;  // destroyed after the lock is released
  {
    const std::lock_guard lock(lock_);
    if (--out_ == 0) last.swap(self_);
    if (!retired_) {
      push(piece, issued.load(std::memory_order_relaxed));
    } else {
      const std::lock_guard shared_lock(shared().lock_);
      shared().push(piece, 0);
    }
  }
  const std::size_t kept = kept_roughly();
  const std::size_t bound = std::max(kAlwaysKept, totals().peak_in_use.load());
  if (kept > bound) evict_everywhere(kept - bound + bound / 4);
}

void StreamPool::retire() noexcept {
  if (this == &shared()) return;
  const std::scoped_lock lock(lock_, shared().lock_);
  retired_ = true;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    auto& to = shared().kept_[i];
    for (const Kept& kept : kept_[i]) to.push_back({kept.data, 0});
    kept_[i].clear();
  }
  ranges_.move_to(shared().ranges_);
  shared().count_kept(std::exchange(unreported_, 0));
}

std::size_t StreamPool::evict(std::size_t bytes) noexcept {
  const std::lock_guard lock(lock_);
  const std::uint64_t done = completed.load(std::memory_order_acquire);
  std::size_t freed = ranges_.remove(bytes, done, kHugePage, [&](char* begin, std::size_t size) {
    unmap(begin, size);
    count_kept(-static_cast<std::ptrdiff_t>(size));
  });
  for (int size_class = kSizeClasses - 1; size_class >= 0 && freed < bytes; --size_class) {
    auto& list = kept_[static_cast<std::size_t>(size_class)];
    const std::size_t size = size_class_bytes(size_class);
    // Oldest first: the newest pieces are most likely to be reused and to be in a CPU's cache.
    auto keep = list.begin();
    for (; keep != list.end() && freed < bytes && keep->returned_at <= done; ++keep) {
      return_to_system(keep->data, size);
      count_kept(-static_cast<std::ptrdiff_t>(size));
      freed += size;
    }
    list.erase(list.begin(), keep);
  }
  return freed;
}

}  // namespace tessera
