#include "tessera/tests/support/emulated_gpu/nccl/nccl_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "tessera/tests/support/emulated_gpu/runtime/runtime.h"

namespace tessera::emulated::nccl {
namespace {

// For the graphs of a communicator that ends, before stderr says that it hangs.
constexpr std::chrono::seconds kPatience{5};

// Lives as long as the graph, or a launch of it that is under way.
class InGraph {
 public:
  explicit InGraph(std::shared_ptr<Communicator> of) : of_(std::move(of)) { add(1); }
  ~InGraph() { add(-1); }
  InGraph(const InGraph&) = delete;
  InGraph& operator=(const InGraph&) = delete;

 private:
  void add(int count) {
    const std::lock_guard lock(of_->clique->mutex);
    of_->captured += count;
    of_->clique->changed.notify_all();
  }
  const std::shared_ptr<Communicator> of_;
};

// Operations of one communicator that start together: sends and receives among them wait for one
// another's other sides at the same time.
struct Batch {
  std::shared_ptr<Communicator> communicator;
  std::vector<Operation> operations;
  std::vector<cudaStream_t> streams;  // the first runs them, the others wait for it
  std::uint64_t ticket = 0;
  std::shared_ptr<const InGraph> captured{};  // null: it runs once
};

// One stream's work waits for another's within a group.
struct Join {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t arrived = 0;
  bool done = false;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Batch> batches;
  std::vector<std::shared_ptr<Communicator>> host_calls;
  std::vector<std::shared_ptr<Communicator>> leaving;  // their graphs are waited for
};
thread_local Group group;

void run(const Batch& batch) {
  Communicator& me = *batch.communicator;
  Clique& clique = *me.clique;
  std::unique_lock lock(clique.mutex);
  ++me.running;
  // A communicator's operations run in the order in which they were issued, on whatever streams.
  clique.changed.wait(lock, [&] {
    return batch.captured != nullptr || me.finished + 1 == batch.ticket || me.is_released();
  });
  std::deque<Clique::Posted> posted;
  if (!me.is_released()) {
    for (const Operation& one : batch.operations) {
      Clique::Posted& mine = posted.emplace_back(Clique::Posted{&one, me.rank});
      if (is_point_to_point(one.kind)) {
        clique.post_point_to_point(mine);
      } else {
        clique.post_collective(mine, ++me.collectives);
      }
    }
  }
  const auto all_done = [&] {
    return std::all_of(posted.begin(), posted.end(), [](const auto& one) { return one.done; });
  };
  clique.changed.wait(
      lock, [&] { return all_done() || me.is_released() || clique.is_left_alone(me.rank); });
  for (std::size_t i = 0; i < batch.operations.size(); ++i) {
    if (i < posted.size() && posted[i].done) continue;
    if (i < posted.size()) clique.withdraw(posted[i]);
    spoil(batch.operations[i], me.rank, me.size());
  }
  if (batch.captured == nullptr) me.finished = std::max(me.finished, batch.ticket);
  --me.running;
  clique.changed.notify_all();
}

ncclResult_t issue(cudaStream_t stream, std::function<void()> work) {
  const cudaError_t error = issue_work(stream, std::move(work));
  if (error == cudaSuccess) return ncclSuccess;
  return refuse("NCCL launch", ncclUnhandledCudaError, cudaGetErrorString(error));
}

ncclResult_t issue_joined(const std::shared_ptr<const Batch>& batch) {
  auto join = std::make_shared<Join>();
  const std::size_t others = batch->streams.size() - 1;
  for (std::size_t i = 1; i <= others; ++i) {
    const ncclResult_t result = issue(batch->streams[i], [join] {
      std::unique_lock lock(join->mutex);
      ++join->arrived;
      join->changed.notify_all();
      join->changed.wait(lock, [&] { return join->done; });
    });
    if (result != ncclSuccess) return result;
  }
  return issue(batch->streams[0], [batch, join, others] {
    {
      std::unique_lock lock(join->mutex);
      join->changed.wait(lock, [&] { return join->arrived == others; });
    }
    run(*batch);
    const std::lock_guard lock(join->mutex);
    join->done = true;
    join->changed.notify_all();
  });
}

ncclResult_t launch(Batch batch) {
  Communicator& me = *batch.communicator;
  int before = 0;
  cudaGetDevice(&before);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (batch.streams[0] != nullptr) cudaStreamIsCapturing(batch.streams[0], &capture);
  const bool captured = capture == cudaStreamCaptureStatusActive;
  if (captured && batch.streams.size() > 1) {
    return refuse("ncclGroupEnd", ncclInvalidUsage, "several streams of a group in one capture");
  }
  if (captured) {
    batch.captured = std::make_shared<const InGraph>(batch.communicator);
  } else {
    const std::lock_guard lock(me.clique->mutex);
    batch.ticket = ++me.issued;
  }
  cudaSetDevice(me.device);
  const auto shared = std::make_shared<const Batch>(std::move(batch));
  const ncclResult_t result = shared->streams.size() > 1
                                  ? issue_joined(shared)
                                  : issue(shared->streams[0], [shared] { run(*shared); });
  cudaSetDevice(before);
  return result;
}

ncclResult_t start(Batch batch) {
  Communicator& me = *batch.communicator;
  if (me.blocking) return launch(std::move(batch));
  const std::lock_guard lock(me.clique->mutex);
  me.deferred.push_back([batch = std::move(batch)] { return launch(batch); });
  me.polls = 0;
  return ncclInProgress;
}

// Calls of a group may wait for each other, so all are asked in turns.
ncclResult_t wait_for_all(std::vector<std::shared_ptr<Communicator>> calls) {
  ncclResult_t result = ncclSuccess;
  std::erase_if(calls, [&](const auto& one) {
    if (!one->blocking && result == ncclSuccess) result = ncclInProgress;
    return !one->blocking;
  });
  while (!calls.empty()) {
    std::erase_if(calls, [&](const auto& one) {
      const std::lock_guard lock(one->clique->mutex);
      const ncclResult_t now = poll_pending(*one);
      if (now != ncclSuccess && now != ncclInProgress) result = now;
      return now != ncclInProgress;
    });
    if (calls.empty()) break;
    std::unique_lock lock(calls.front()->clique->mutex);
    calls.front()->clique->changed.wait_for(lock, std::chrono::microseconds(200));
  }
  return result;
}

void wait_for_graphs(Communicator& me) {
  std::unique_lock lock(me.clique->mutex);
  const auto gone = [&me] { return me.captured == 0; };
  if (me.clique->changed.wait_for(lock, kPatience, gone)) return;
  refuse("NCCL communicator", ncclInternalError,
         fmt::format("rank {} cannot end while CUDA graphs have calls of it", me.rank));
  me.clique->changed.wait(lock, gone);
}

ncclResult_t end_group(Group ended) {
  for (const auto& one : ended.leaving) wait_for_graphs(*one);
  if (ended.error != ncclSuccess) return ended.error;
  ncclResult_t result = ncclSuccess;
  const auto keep = [&](ncclResult_t one) {
    if (result == ncclSuccess || result == ncclInProgress)
      result = one == ncclSuccess ? result : one;
  };
  for (Batch& batch : ended.batches) keep(start(std::move(batch)));
  keep(wait_for_all(ended.host_calls));
  return result;
}

}  // namespace

bool in_group() { return group.depth > 0; }

ncclResult_t add_operation(const std::shared_ptr<Communicator>& communicator,
                           const Operation& operation, cudaStream_t stream) {
  if (!in_group()) return start({communicator, {operation}, {stream}});
  auto found = std::find_if(group.batches.begin(), group.batches.end(),
                            [&](const Batch& batch) { return batch.communicator == communicator; });
  if (found == group.batches.end()) {
    group.batches.push_back({communicator, {operation}, {stream}});
    return ncclSuccess;
  }
  found->operations.push_back(operation);
  auto& streams = found->streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  return ncclSuccess;
}

bool group_waits_for(const Communicator& communicator) {
  return std::any_of(group.host_calls.begin(), group.host_calls.end(),
                     [&](const auto& one) { return one.get() == &communicator; });
}

void add_host_call(const std::shared_ptr<Communicator>& communicator) {
  group.host_calls.push_back(communicator);
}

void await_graphs(const std::shared_ptr<Communicator>& communicator) {
  if (!in_group()) return wait_for_graphs(*communicator);
  group.leaving.push_back(communicator);
}

ncclResult_t note_error(ncclResult_t result) {
  if (in_group() && result != ncclSuccess && result != ncclInProgress &&
      group.error == ncclSuccess) {
    group.error = result;
  }
  return result;
}

ncclResult_t end_host_call(const std::shared_ptr<Communicator>& communicator) {
  if (in_group()) {
    add_host_call(communicator);
    return ncclSuccess;
  }
  return communicator->blocking ? wait_for_pending(*communicator) : ncclInProgress;
}

}  // namespace tessera::emulated::nccl

extern "C" {

using namespace tessera::emulated::nccl;  // NOLINT: what follows is the API itself

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) {
    return refuse(__func__, ncclInvalidUsage, "there was no ncclGroupStart on this thread");
  }
  if (--group.depth > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, group);
  return end_group(std::move(ended));
}

}  // extern "C"
