// Byte counters, the allocator and its pools.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/memory/memory_holders.h"
#include "tessera/tensor/memory/storage.h"
#include "tessera/tensor/memory/stream_pool.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

DeviceStream queued(const std::string& name) {
  return DeviceStream::create(kCpu, StreamKind::kQueued, name);
}
DeviceStream inlined(const std::string& name) {
  return DeviceStream::create(kCpu, StreamKind::kInline, name);
}

MemoryBlock take(std::size_t bytes, const DeviceStream& stream) {
  return MemoryBlock::take(bytes, stream, MemoryCategory::kOther);
}

TEST_CASE("counters: current, peaks and their reset") {
  MemoryCounters counters;
  counters.add(MemoryCategory::kParameter, 64);
  counters.add(MemoryCategory::kGathered, 128);
  counters.subtract(MemoryCategory::kGathered, 128);
  counters.add(MemoryCategory::kGradient, 64);
  counters.add(MemoryCategory::kActivation, 1024);
  counters.subtract(MemoryCategory::kActivation, 1024);
  CHECK(counters.current()[MemoryCategory::kParameter] == 64);
  CHECK(counters.current()[MemoryCategory::kGathered] == 0);
  CHECK(counters.current().total() == 128);
  CHECK(counters.peak()[MemoryCategory::kGathered] == 128);
  CHECK(counters.peak()[MemoryCategory::kActivation] == 1024);
  CHECK(counters.peak_total() == 64 + 64 + 1024);
  CHECK(counters.peak_model() == 64 + 128);  // parameter and gathered, no gradient yet
  counters.reset_peak();
  CHECK(counters.peak().total() == 128);
  CHECK(counters.peak_total() == 128);
  CHECK(counters.peak_model() == 128);
}

TEST_CASE("counters: names and the thread's category") {
  std::set<std::string> names;
  for (int i = 0; i < kMemoryCategories; ++i) {
    names.insert(memory_category_name(static_cast<MemoryCategory>(i)));
  }
  CHECK(names == std::set<std::string>{"parameter", "gradient", "optimizer", "gathered",
                                       "activation", "workspace", "communication", "other"});
  CHECK(current_memory_category() == MemoryCategory::kActivation);
  {
    const MemoryCategoryScope outer(MemoryCategory::kOptimizer);
    {
      const MemoryCategoryScope inner(MemoryCategory::kGradient);
      CHECK(current_memory_category() == MemoryCategory::kGradient);
    }
    CHECK(current_memory_category() == MemoryCategory::kOptimizer);
  }
  CHECK(current_memory_category() == MemoryCategory::kActivation);
}

TEST_CASE("counters: outlive their rank while bytes are counted in them") {
  auto context = std::make_shared<RankContext>(0, 1, 1);
  const std::weak_ptr<MemoryCounters> counters = context->memory().weak_from_this();
  MemoryBlock first, second;
  {
    const RankScope scope(context);
    first = MemoryBlock::take(100, inlined("s"), MemoryCategory::kOther);
    second = MemoryBlock::take(100, inlined("s"), MemoryCategory::kGradient);
    CHECK(take(0, inlined("s")).counted_bytes() == 0);
  }
  context.reset();
  std::thread([block = std::move(first)]() mutable { block = MemoryBlock(); }).join();
  REQUIRE_FALSE(counters.expired());
  CHECK(counters.lock()->current().total() == 128);
  CHECK(counters.lock()->peak_total() == 256);
  std::thread([block = std::move(second)]() mutable { block = MemoryBlock(); }).join();
  CHECK(counters.expired());
}

TEST_CASE("size classes: hold what they promise, in order, with bounded waste") {
  for (int i = 0; i < kSizeClasses; ++i) {
    const std::size_t bytes = size_class_bytes(i);
    REQUIRE(bytes % 64 == 0);
    REQUIRE(size_class_of(bytes) == i);
    if (i + 1 < kSizeClasses) {
      REQUIRE(size_class_of(bytes + 1) == i + 1);
      REQUIRE(size_class_bytes(i + 1) - bytes <= std::max<std::size_t>(64, bytes / 8));
    }
  }
  CHECK(size_class_of(0) == 0);
  CHECK(size_class_bytes(kSizeClasses - 1) == kMaxBlockBytes);
}

TEST_CASE("block: counted to the rank that took it, rounded up, until it goes back") {
  CHECK(counted_bytes(DeviceType::kCpu, 0) == 0);
  CHECK(counted_bytes(DeviceType::kCpu, 1) == 64);
  CHECK(counted_bytes(DeviceType::kCpu, 64) == 64);
  CHECK(counted_bytes(DeviceType::kNull, 65) == 128);
  CHECK(counted_bytes(DeviceType::kCuda, 513) == 1024);
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const MemoryCounters& counters = context->memory();
  MemoryBlock block;
  CHECK(block.empty());
  {
    const RankScope scope(context);
    block = MemoryBlock::take(100, inlined("s"), MemoryCategory::kGathered);
  }
  CHECK_FALSE(block.empty());
  CHECK(block.bytes() == 100);
  CHECK(block.counted_bytes() == 128);
  CHECK(counters.current()[MemoryCategory::kGathered] == 128);
  MemoryBlock moved = std::move(block);
  CHECK(counters.current()[MemoryCategory::kGathered] == 128);
  moved = MemoryBlock();  // outside the scope: still counted for that rank
  CHECK(counters.current().total() == 0);
  CHECK(counters.peak_model() == 128);
}

TEST_CASE("block: addresses are aligned, zero bytes have one too") {
  const DeviceStream stream = inlined("s");
  for (std::size_t bytes : {0, 1, 63, 64, 65, 1000, 4095}) {
    const MemoryBlock block = take(bytes, stream);
    REQUIRE(reinterpret_cast<std::uintptr_t>(block.data()) % 64 == 0);
    REQUIRE(block.data() != nullptr);
  }
  for (std::size_t bytes : {4096, 4097, 100000, 5000000}) {
    const MemoryBlock block = take(bytes, stream);
    REQUIRE(reinterpret_cast<std::uintptr_t>(block.data()) % 256 == 0);
    std::memset(block.data(), 1, bytes);
  }
  CHECK(take(0, stream).counted_bytes() == 0);
}

TEST_CASE("block: goes back to its own stream only") {
  const DeviceStream a = queued("a");
  const DeviceStream b = queued("b");
  const std::size_t bytes = 777777;  // a size that no other test leaves behind
  MemoryBlock block = take(bytes, a);
  void* const address = block.data();
  block = MemoryBlock();
  CHECK(take(bytes, b).data() != address);
  block = take(bytes, a);
  CHECK(block.data() == address);
}

TEST_CASE("block: what a destroyed stream kept is for everyone") {
  const std::size_t bytes = 888888;
  void* kept = nullptr;
  void* outliving_address = nullptr;
  MemoryBlock outliving;
  {
    const DeviceStream stream = queued("short");
    MemoryBlock block = take(bytes, stream);
    outliving = take(bytes, stream);
    kept = block.data();
    outliving_address = outliving.data();
  }
  const DeviceStream other = inlined("other");
  const MemoryBlock again = take(bytes, other);
  CHECK(again.data() == kept);
  // Its stream is gone, and so is the thread that took it.
  std::thread([block = std::move(outliving)]() mutable { block = MemoryBlock(); }).join();
  CHECK(take(bytes, other).data() == outliving_address);
}

// The host returns blocks while queued work still uses them; the stream's next user runs later.
TEST_CASE("block: reuse is in stream order under load") {
  const DeviceStream stream = queued("compute");
  constexpr std::size_t kBytes = 4096;
  std::atomic<int> errors{0};
  std::set<void*> addresses;
  for (int i = 0; i < 2000; ++i) {
    const auto value = static_cast<unsigned char>(i % 251);
    const MemoryBlock block = take(kBytes, stream);
    addresses.insert(block.data());
    auto* data = static_cast<unsigned char*>(block.data());
    stream.enqueue("write", [data, value] { std::memset(data, value, kBytes); });
    stream.enqueue("check", [data, value, &errors] {
      if (std::any_of(data, data + kBytes, [&](unsigned char x) { return x != value; })) ++errors;
    });
  }
  stream.synchronize();
  CHECK(errors == 0);
  CHECK(addresses.size() == 1);
}

TEST_CASE("cache: emptied, but not of what queued work may still use") {
  const DeviceStream stream = queued("compute");
  empty_cpu_cache();
  const std::size_t before = cached_cpu_bytes();
  std::atomic<bool> go{false};
  {
    const MemoryBlock block = take(1 << 20, stream);
    stream.enqueue("use", [&go, data = block.data()] {
      while (!go) std::this_thread::yield();
      std::memset(data, 1, 1 << 20);
    });
  }
  CHECK(cached_cpu_bytes() == before + (1 << 20));
  empty_cpu_cache();
  CHECK(cached_cpu_bytes() == before + (1 << 20));
  go = true;
  stream.synchronize();
  empty_cpu_cache();
  CHECK(cached_cpu_bytes() <= before);
}

TEST_CASE("cache: small blocks are counted one by one") {
  const DeviceStream stream = inlined("s");
  empty_cpu_cache();
  const std::size_t before = cached_cpu_bytes();
  std::vector<MemoryBlock> blocks;
  for (int i = 0; i < 3000; ++i) blocks.push_back(take(64, stream));
  CHECK(cached_cpu_bytes() == before);
  for (std::size_t i = 1; i <= 3000; ++i) {
    blocks.pop_back();
    if (i % 97 == 0) REQUIRE(cached_cpu_bytes() == before + 64 * i);
  }
  const MemoryBlock again = take(64, stream);
  CHECK(cached_cpu_bytes() == before + 64 * 2999);
  empty_cpu_cache();
  CHECK(cached_cpu_bytes() == before);
}

TEST_CASE("cache: bounded") {
  const DeviceStream stream = inlined("s");
  empty_cpu_cache();
  // Sizes that grow by a third never fit a cached block, so without a bound all of them would stay.
  std::size_t sum = 0;
  for (std::size_t bytes = std::size_t{1} << 20; bytes < std::size_t{1} << 29; bytes += bytes / 3) {
    sum += bytes;
    take(bytes, stream);
  }
  CHECK(sum > std::size_t{3} << 29);
  CHECK(cached_cpu_bytes() <= std::size_t{1} << 29);
  empty_cpu_cache();
}

TEST_CASE("allocator: out of memory lists the bytes by category") {
  const RankScope scope(std::make_shared<RankContext>(1, 2, 1));
  const DeviceStream stream = inlined("compute");
  const MemoryBlock parameter = MemoryBlock::take(1000, stream, MemoryCategory::kParameter);
  const MemoryBlock gathered = MemoryBlock::take(64, stream, MemoryCategory::kGathered);
  const std::size_t absurd = std::size_t{1} << 50;
  const std::string text =
      thrown<OutOfMemory>([&] { MemoryBlock::take(absurd, stream, MemoryCategory::kGathered); });
  const std::string head =
      "[allocator] rank 1: no room on cpu for 1125899906842624 bytes of category gathered, taken "
      "on "
      "stream \"compute\"; live bytes of this rank: parameter 1024, gradient 0, optimizer 0, "
      "gathered 64, activation 0, workspace 0, communication 0, other 0, together 1088; "
      "largest: none of 1 MiB; this process holds ";
  CHECK(text.substr(0, head.size()) == head);
  const std::string tail = " of them kept for reuse; use smaller batches or more ranks";
  REQUIRE(text.size() > tail.size());
  CHECK(text.substr(text.size() - tail.size()) == tail);
  CHECK(current_rank_context()->memory().current().total() == 1088);  // a failure is not counted
}

TEST_CASE("allocator: out of memory names the largest holders of the rank") {
  const RankScope scope(std::make_shared<RankContext>(0, 1, 1));
  const auto storage = [](std::size_t bytes, MemoryCategory category, const char* name) {
    TensorStorage out = TensorStorage::create(kNull, bytes, category, name);
    out.materialize();
    return out;
  };
  TensorStorage gathered = storage(3 << 20, MemoryCategory::kGathered, "blocks.0");
  const TensorStorage weight = storage(5 << 20, MemoryCategory::kParameter, "weight");
  const TensorStorage small = storage((1 << 20) - 64, MemoryCategory::kParameter, "bias");
  const auto name = make_scope_name();
  name->set("up", nullptr);
  const std::string unnamed = [&] {
    const NamedScope inside(*name);
    return "#" + std::to_string(storage(1, MemoryCategory::kActivation, "").id() + 1);
  }();
  TensorStorage activation;
  {
    const NamedScope inside(*name);
    activation = storage(4 << 20, MemoryCategory::kActivation, "");
  }
  const auto text = [] {
    return thrown<OutOfMemory>([] {
      MemoryBlock::take(std::size_t{1} << 50, DeviceStream::create(kNull, StreamKind::kInline, "s"),
                        MemoryCategory::kOther);
    });
  };
  CHECK(text().find("; largest: weight 5242880 (parameter), " + unnamed +
                    " made in up 4194304 (activation), blocks.0 3145728 (gathered); this") !=
        std::string::npos);
  gathered.release();
  activation = TensorStorage();
  CHECK(text().find("; largest: weight 5242880 (parameter); this") != std::string::npos);
  CHECK(largest_memory_holders(0).empty());
  REQUIRE(largest_memory_holders(9).size() == 1);
  const RankScope other(std::make_shared<RankContext>(1, 2, 1));
  CHECK(largest_memory_holders(9).empty());
}

TEST_CASE("allocator: a limit of the process, for which kept blocks make room") {
  const DeviceStream stream = inlined("s");
  empty_cpu_cache();
  const std::size_t used = cpu_memory().from_system;
  set_cpu_memory_limit(used + (3 << 20));
  take(2 << 20, stream);                            // cached from now on
  const MemoryBlock large = take(3 << 20, stream);  // needs the cached block's memory
  CHECK(large.data() != nullptr);
  CHECK(thrown<OutOfMemory>([&] { take(1 << 20, stream); }).find("no room on cpu for 1048576") !=
        std::string::npos);
  set_cpu_memory_limit(0);
  CHECK(take(1 << 20, stream).data() != nullptr);
}

// Sanitizers keep freed memory, to detect its uses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Resident memory of the process.
std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Afterwards malloc maps no small allocation by itself, and keeps freed memory.
void make_malloc_keep_more() {
  void* const once = std::malloc(std::size_t{30} << 20);
  *static_cast<volatile char*>(once) = 1;
  std::free(once);
}

// Blocks with malloc allocations in between, which stay; all are written to.
struct Scattered {
  Scattered(const DeviceStream& stream, std::size_t count, std::size_t bytes) {
    for (std::size_t i = 0; i < count; ++i) {
      blocks.push_back(take(bytes, stream));
      std::memset(blocks.back().data(), 1, bytes);
      between.push_back(std::make_unique<std::array<char, 200>>());
    }
  }
  std::vector<MemoryBlock> blocks;
  std::vector<std::unique_ptr<std::array<char, 200>>> between;
};

TEST_CASE("allocator: an emptied cache is memory that the process has no longer") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const DeviceStream stream = inlined("s");
  make_malloc_keep_more();
  for (const std::size_t bytes : {std::size_t{40000}, std::size_t{307200}, 3 * kMiB, 9 * kMiB}) {
    INFO("blocks of " << bytes);
    empty_cpu_cache();
    const std::size_t before = resident_bytes();
    Scattered kept(stream, 48 * kMiB / bytes, bytes);
    kept.blocks.clear();
    CHECK(resident_bytes() >= before + 40 * kMiB);  // cached for reuse
    CHECK(cached_cpu_bytes() >= 40 * kMiB);
    empty_cpu_cache();
    CHECK(cached_cpu_bytes() == 0);
    // Small blocks share their first and last pages with the allocations in between.
    CHECK(resident_bytes() <= before + (bytes < 100000 ? 12 : 3) * kMiB);
  }
}

TEST_CASE("pool: a large piece that is evicted leaves the process, also without malloc's help") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  make_malloc_keep_more();
  empty_cpu_cache();
  const auto pool = std::make_shared<StreamPool>();
  const std::size_t before = resident_bytes();
  std::vector<StreamPool::Piece> pieces;
  std::vector<std::unique_ptr<std::array<char, 200>>> between;
  for (int i = 0; i < 12; ++i) {
    pieces.push_back(pool->take(size_class_of(3 * kMiB)));
    REQUIRE(pieces.back().data != nullptr);
    std::memset(pieces.back().data, 1, 3 * kMiB);
    between.push_back(std::make_unique<std::array<char, 200>>());
  }
  for (const StreamPool::Piece& piece : pieces) pool->give_back(piece);
  CHECK(resident_bytes() >= before + 30 * kMiB);
  CHECK(pool->evict(36 * kMiB) == 36 * kMiB);
  CHECK(resident_bytes() <= before + 5 * kMiB);
}
#endif

TEST_CASE("allocator: null device counts bytes and reserves addresses") {
  const RankScope scope(std::make_shared<RankContext>(0, 1, 1));
  const DeviceStream stream = DeviceStream::create(kNull, StreamKind::kInline, "planned");
  const std::size_t held = cpu_memory().from_system;
  const MemoryBlock huge =
      MemoryBlock::take(std::size_t{1} << 45, stream, MemoryCategory::kParameter);
  const MemoryBlock empty = MemoryBlock::take(0, stream, MemoryCategory::kParameter);
  const MemoryBlock next = MemoryBlock::take(1, stream, MemoryCategory::kParameter);
  CHECK(huge.data() != nullptr);
  CHECK(std::set<void*>{huge.data(), empty.data(), next.data()}.size() == 3);
  CHECK(static_cast<char*>(next.data()) - static_cast<char*>(huge.data()) >=
        (std::ptrdiff_t{1} << 45));
  CHECK(current_rank_context()->memory().current().total() == (std::int64_t{1} << 45) + 64);
  CHECK(cpu_memory().from_system == held);
}

TEST_CASE("allocator: many threads take and give back at once") {
  constexpr int kThreads = 4;
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const RankScope scope(std::make_shared<RankContext>(t, kThreads, 1));
      const DeviceStream stream = t % 2 == 0 ? inlined("i") : queued("q");
      std::vector<MemoryBlock> held;
      for (std::size_t i = 0; i < 2000; ++i) {
        held.push_back(MemoryBlock::take(i * 37 % 5000, stream, MemoryCategory::kActivation));
        if (held.size() > 8) held.erase(held.begin() + static_cast<std::ptrdiff_t>(i % 8));
        if (i % 500 == 0) empty_cpu_cache();
      }
      held.clear();
      if (current_rank_context()->memory().current().total() != 0) ++errors;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == 0);
}

}  // namespace
}  // namespace tessera
