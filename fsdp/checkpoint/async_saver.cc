#include "tessera/fsdp/checkpoint/async_saver.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/checkpoint/pending_save.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::checkpoint {

AsyncSaver::AsyncSaver() = default;

AsyncSaver::~AsyncSaver() {
  // Untimed: it only writes files. Where a disk hangs, the other ranks' waits for this one end.
  if (thread_.joinable()) thread_.join();
}

void AsyncSaver::save(const std::string& folder, const State& state) {
  wait();
  group_ = state.group;
  // The copies live as long as the thread needs them: counted as the rank's, they would make the peak of a
  // step depend on the disk.
  const RankContext& rank = *current_rank_context();
  const auto context =
      std::make_shared<RankContext>(rank.rank(), rank.world_size(), rank.threads());
  pending_ = std::make_unique<PendingSave>(folder, state, context);
  written_ = false;
  const auto write = [this, context,
                      stream = DeviceStream::create(kCpu, StreamKind::kInline, "checkpoint")] {
    const RankScope scope(context);
    const StreamGuard guard(stream);
    pending_->write();
    written_ = true;
  };
  try {
    thread_ = std::thread(write);
  } catch (const std::system_error&) {  // no more threads: the other ranks still count on this one
    write();
  }
}

bool AsyncSaver::poll() {
  if (pending_ == nullptr) return true;
  const std::vector<std::string> all = all_gather_texts(group_.get(), written_ ? "written" : "");
  if (std::find(all.begin(), all.end(), "") != all.end()) return false;
  publish();
  return true;
}

void AsyncSaver::wait() {
  if (pending_ != nullptr) publish();
}

void AsyncSaver::publish() {
  // Untimed: as above.
  if (thread_.joinable()) thread_.join();
  const std::unique_ptr<PendingSave> pending = std::move(pending_);
  pending->publish();
}

}  // namespace tessera::checkpoint
