#include "tessera/tensor/memory/storage.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

/// "action category name bytes" of each storage record.
std::vector<std::string> storage_records(const ExecutionTrace& trace) {
  std::vector<std::string> out;
  for (const StorageRecord& record : trace.all<StorageRecord>()) {
    const char* action = "?";
    switch (record.action) {
      case StorageAction::kMaterialize:
        action = "materialize";
        break;
      case StorageAction::kRelease:
        action = "release";
        break;
      case StorageAction::kDetach:
        action = "detach";
        break;
      case StorageAction::kFree:
        action = "free";
        break;
    }
    out.push_back(std::string(action) + " " + memory_category_name(record.category) + " " +
                  record.name + " " + std::to_string(record.bytes));
  }
  return out;
}

TEST_CASE("storage: what is retired is told why, whatever is asked of it") {
  TensorStorage storage = TensorStorage::create(kCpu, 100, MemoryCategory::kGathered, "block.0");
  const TensorStorage other_handle = storage;
  storage.materialize();
  storage.retire("its owner is gone");
  CHECK(storage.state() == StorageState::kReleased);
  const std::string text = "] storage \"block.0\" (#" + std::to_string(storage.id()) +
                           ", 100 bytes) is released for good: its owner is gone";
  CHECK(thrown<StateError>([&] { other_handle.data(); }) == "[storage.data" + text);
  CHECK(thrown<StateError>([&] { storage.begin_fill(); }) == "[storage.begin_fill" + text);
  CHECK(thrown<StateError>([&] { storage.materialize(); }) == "[storage.materialize" + text);
  storage.release();  // no-op
  CHECK(storage.detach().empty());
}

TEST_CASE("storage: states and what is legal in each") {
  TensorStorage storage = TensorStorage::create(kCpu, 100, MemoryCategory::kGathered, "block.0");
  CHECK(storage.state() == StorageState::kReleased);
  CHECK(storage.bytes() == 100);
  CHECK(storage.category() == MemoryCategory::kGathered);
  CHECK(storage.name() == "block.0");
  CHECK(storage.device() == kCpu);
  const std::string label =
      "storage \"block.0\" (#" + std::to_string(storage.id()) + ", 100 bytes) ";
  const std::string released = label + "is released; materialize it before use";
  const std::string filling = label + "is being filled by its owner; wait until the fill has ended";
  CHECK(thrown<StateError>([&] { storage.data(); }) == "[storage.data] " + released);
  CHECK(thrown<StateError>([&] { storage.filling_data(); }) ==
        "[storage.filling_data] " + released);
  CHECK(thrown<StateError>([&] { storage.begin_fill(); }) == "[storage.begin_fill] " + released);
  CHECK(thrown<StateError>([&] { storage.end_fill(); }) == "[storage.end_fill] " + released);
  storage.release();  // no-op
  storage.materialize();
  CHECK(storage.state() == StorageState::kReady);
  void* const data = storage.data();
  storage.materialize();
  storage.end_fill();
  CHECK(storage.data() == data);
  storage.begin_fill();
  storage.begin_fill();
  storage.materialize();
  CHECK(storage.state() == StorageState::kFilling);
  CHECK(thrown<StateError>([&] { storage.data(); }) == "[storage.data] " + filling);
  CHECK(storage.filling_data() == data);
  storage.end_fill();
  CHECK(storage.data() == data);
  storage.begin_fill();
  storage.release();
  CHECK(storage.state() == StorageState::kReleased);
}

TEST_CASE("storage: handles, and unnamed ones in errors") {
  const TensorStorage a = TensorStorage::create(kCpu, 8, MemoryCategory::kOther);
  const TensorStorage b = TensorStorage::create(kCpu, 8, MemoryCategory::kOther);
  CHECK_FALSE(a == b);
  CHECK(a == TensorStorage(a));
  CHECK(a.id() != b.id());
  CHECK(thrown<StateError>([&] { a.data(); }) ==
        "[storage.data] storage #" + std::to_string(a.id()) +
            " of 8 bytes is released; materialize it before use");
  CHECK_FALSE(TensorStorage().defined());
  CHECK(thrown<StateError>([] { (void)TensorStorage().bytes(); }) ==
        "[storage] this handle holds no storage; make one with Storage::create");
}

TEST_CASE("storage: emptied and refilled in place, views stay valid") {
  TensorStorage storage =
      TensorStorage::create(kCpu, 6 * sizeof(float), MemoryCategory::kGathered, "flat");
  storage.materialize();
  const Tensor all = Tensor::over(storage, {2, 3}, {3, 1}, 0, DType::kF32);
  const Tensor column = all.select(1, 2);
  const auto fill = [&](float start) {
    auto* data = static_cast<float*>(storage.filling_data());
    for (int i = 0; i < 6; ++i) data[i] = start + static_cast<float>(i);
  };
  storage.begin_fill();
  fill(0);
  CHECK(thrown<StateError>([&] { column.to_vector<float>(); }).find("being filled") !=
        std::string::npos);
  storage.end_fill();
  CHECK(column.to_vector<float>() == std::vector<float>{2, 5});
  storage.release();
  CHECK(thrown<StateError>([&] { column.to_vector<float>(); }).find("is released") !=
        std::string::npos);
  storage.materialize();
  storage.begin_fill();
  fill(10);
  storage.end_fill();
  CHECK(column.to_vector<float>() == std::vector<float>{12, 15});
  CHECK(all.version() == 0);  // a refill by the owner is not an overwrite
}

TEST_CASE("storage: bytes are counted from materialize to release or the detached block's end") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  const MemoryCounters& counters = context->memory();
  const auto gathered = [&] { return counters.current()[MemoryCategory::kGathered]; };
  ExecutionTrace trace;
  context->set_trace(&trace);
  {
    TensorStorage storage = TensorStorage::create(kCpu, 100, MemoryCategory::kGathered, "flat");
    CHECK(gathered() == 0);
    storage.materialize();
    CHECK(gathered() == 128);
    storage.release();
    CHECK(gathered() == 0);
    storage.materialize();
    MemoryBlock block = storage.detach();
    CHECK(storage.state() == StorageState::kReleased);
    CHECK(gathered() == 128);
    storage.materialize();  // in addition to the detached bytes
    CHECK(gathered() == 256);
    MemoryBlock moved = std::move(block);
    moved = MemoryBlock();
    CHECK(gathered() == 128);
    CHECK(storage.detach().bytes() == 100);  // a temporary: returned at once
    CHECK(gathered() == 0);
    CHECK(storage.detach().empty());
    storage.materialize();
  }
  CHECK(gathered() == 0);
  context->set_trace(nullptr);
  CHECK(storage_records(trace) ==
        std::vector<std::string>{"materialize gathered flat 128", "release gathered flat 128",
                                 "materialize gathered flat 128", "detach gathered flat 128",
                                 "materialize gathered flat 128", "free gathered flat 128",
                                 "detach gathered flat 128", "free gathered flat 128",
                                 "materialize gathered flat 128", "release gathered flat 128"});
}

TEST_CASE("storage: memory comes from the current stream and goes back to it") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "gather");
  TensorStorage storage = TensorStorage::create(kCpu, 999999, MemoryCategory::kGathered);
  void* first = nullptr;
  {
    const StreamGuard guard(stream);
    storage.materialize();
    first = storage.data();
  }
  storage.release();
  storage.materialize();  // on the default stream
  CHECK(storage.data() != first);
  storage.release();
  const StreamGuard guard(stream);
  storage.materialize();
  CHECK(storage.data() == first);
}

TEST_CASE("storage: whose memory it is, and how many handles share it") {
  const DeviceStream mine = DeviceStream::create(kCpu, StreamKind::kQueued, "mine");
  const DeviceStream other = DeviceStream::create(kCpu, StreamKind::kInline, "other");
  TensorStorage storage = TensorStorage::create(kCpu, 100, MemoryCategory::kOther);
  CHECK_FALSE(storage.belongs_to(mine));  // released
  {
    const StreamGuard guard(mine);
    storage.materialize();
  }
  CHECK(storage.belongs_to(mine));
  CHECK_FALSE(storage.belongs_to(other));
  CHECK_FALSE(storage.belongs_to(current_stream(kNull)));
  storage.release();
  CHECK_FALSE(storage.belongs_to(mine));
  TensorStorage planned = TensorStorage::create(kNull, 100, MemoryCategory::kOther);
  planned.materialize();
  CHECK(planned.belongs_to(current_stream(kNull)));
  CHECK_FALSE(planned.belongs_to(other));
  CHECK(TensorStorage().use_count() == 0);
  CHECK(storage.use_count() == 1);
  const TensorStorage copy = storage;
  CHECK(storage.use_count() == 2);
}

TEST_CASE("storage: on the null device") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  TensorStorage storage = TensorStorage::create(kNull, 1000, MemoryCategory::kParameter, "w");
  storage.materialize();
  CHECK(storage.data() != nullptr);
  CHECK(context->memory().current()[MemoryCategory::kParameter] == 1024);
  storage.release();
  CHECK(context->memory().current().total() == 0);
}

TEST_CASE("storage: on a GPU that is not there") {
  TensorStorage storage = TensorStorage::create({DeviceType::kCuda, 63}, 8, MemoryCategory::kOther);
  CHECK(thrown<DeviceError>([&] { storage.materialize(); }).find("cuda:63 cannot run") !=
        std::string::npos);
  CHECK(storage.state() == StorageState::kReleased);
}

}  // namespace
}  // namespace tessera
