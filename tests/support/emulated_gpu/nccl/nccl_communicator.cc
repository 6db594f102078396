#include "tessera/tests/support/emulated_gpu/nccl/nccl_communicator.h"

#include <fmt/core.h>

#include <utility>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_group.h"

namespace tessera::emulated::nccl {
namespace {

struct Live {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<Communicator>> all;
};
Live& live() {
  static Live communicators;
  return communicators;
}

ncclResult_t check_config(const char* function, const ncclConfig_t* config) {
  if (config == nullptr) return ncclSuccess;
  const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
  if (config->magic != fresh.magic || config->size != fresh.size) {
    return refuse(function, ncclInvalidArgument, "the config was not made by its initializer");
  }
  if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1) {
    return refuse(function, ncclInvalidArgument, fmt::format("blocking = {}", config->blocking));
  }
  return ncclSuccess;
}

bool is_blocking(const ncclConfig_t* config) { return config == nullptr || config->blocking != 0; }

ncclResult_t init(const char* function, ncclComm_t* handle, int ranks, const ncclUniqueId& id,
                  int rank, const ncclConfig_t* config) {
  if (handle == nullptr) return refuse(function, ncclInvalidArgument, "no place given");
  *handle = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return refuse(function, ncclInvalidArgument, fmt::format("rank {} of {}", rank, ranks));
  }
  if (const ncclResult_t bad = check_config(function, config); bad != ncclSuccess) return bad;
  auto made = std::make_shared<Communicator>();
  if (cudaGetDevice(&made->device) != cudaSuccess) {
    return refuse(function, ncclUnhandledCudaError, "there is no GPU");
  }
  const auto [clique, result] = enter(id, ranks, rank, made->device);
  if (clique == nullptr) return result;
  made->clique = clique, made->rank = rank;
  made->blocking = is_blocking(config);
  made->pending.push_back([clique = clique.get(), rank] { return clique->join_result(rank); });
  *handle = publish(made);
  const ncclResult_t ended = end_host_call(made);
  if (ended == ncclSuccess || ended == ncclInProgress) return ended;
  retire(*handle);
  *handle = nullptr;
  return ended;
}

// Waits, without operations under way, until all ranks of the communicator have come here.
ncclResult_t finalize_result(Communicator& me) {
  Clique& clique = *me.clique;
  Clique::Member& member = clique.members[me.rank];
  if (member.error != ncclSuccess) return member.error;
  if (me.finished < me.issued || me.captured > 0) return ncclInProgress;
  if (!member.finalized) {
    member.finalized = true;
    clique.changed.notify_all();
  }
  if (!clique.all_finalized()) return ncclInProgress;
  me.finalized = true;
  return ncclSuccess;
}

void begin_finalize(Communicator& me) {
  me.finalizing = true;
  const std::lock_guard lock(me.clique->mutex);
  me.pending.push_back([&me] { return finalize_result(me); });
}

}  // namespace

std::shared_ptr<Communicator> find(const char* function, ncclComm_t handle) {
  const std::lock_guard lock(live().mutex);
  const auto found = live().all.find(handle);
  if (found != live().all.end()) return found->second;
  refuse(function, ncclInvalidArgument, "this is no live communicator");
  return nullptr;
}
ncclComm_t publish(std::shared_ptr<Communicator> communicator) {
  const auto handle = reinterpret_cast<ncclComm_t>(communicator.get());
  const std::lock_guard lock(live().mutex);
  live().all[handle] = std::move(communicator);
  return handle;
}
void retire(ncclComm_t handle) {
  const std::lock_guard lock(live().mutex);
  live().all.erase(handle);
}

ncclResult_t check_ready(const char* function, Communicator& me) {
  const std::lock_guard lock(me.clique->mutex);
  const ncclResult_t error = me.clique->members[me.rank].error;
  if (error != ncclSuccess) return refuse(function, error, "the communicator has failed before");
  if (me.finalizing) return refuse(function, ncclInvalidArgument, "the communicator is finalized");
  const bool pending = !me.pending.empty() && !group_waits_for(me);
  if (pending || !me.deferred.empty() || me.launching) {
    return refuse(function, ncclInvalidArgument,
                  "the communicator is used before the call before has ended with ncclSuccess");
  }
  return ncclSuccess;
}

ncclResult_t poll_pending(Communicator& me) {
  while (!me.pending.empty()) {
    const ncclResult_t one = me.pending.front()();
    if (one == ncclInProgress) return one;
    me.pending.erase(me.pending.begin());
    if (one == ncclSuccess) continue;
    me.pending.clear();
    return one;
  }
  return ncclSuccess;
}

ncclResult_t wait_for_pending(Communicator& me) {
  const auto clique = me.clique;
  std::unique_lock lock(clique->mutex);
  ncclResult_t result = ncclSuccess;
  clique->changed.wait(lock, [&] {
    result = poll_pending(me);
    return result != ncclInProgress;
  });
  return result;
}

}  // namespace tessera::emulated::nccl

extern "C" {

using namespace tessera::emulated::nccl;  // NOLINT: what follows is the API itself

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return note_error(init(__func__, comm, ranks, id, rank, config));
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return note_error(ncclInvalidArgument);
  if (const ncclResult_t bad = check_ready(__func__, *me); bad != ncclSuccess)
    return note_error(bad);
  begin_finalize(*me);
  return note_error(end_host_call(me));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  if (me->finalizing && !me->finalized) {
    ncclResult_t now = ncclSuccess;
    ncclCommGetAsyncError(comm, &now);
    if (now == ncclInProgress) {
      return refuse(__func__, ncclInvalidArgument,
                    "ncclCommFinalize has not ended with ncclSuccess");
    }
  }
  if (!me->finalizing) {
    begin_finalize(*me);
    wait_for_pending(*me);
  }
  retire(comm);
  await_graphs(me);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  retire(comm);
  {
    std::unique_lock lock(me->clique->mutex);
    me->deferred.clear();
    me->pending.clear();
    me->clique->abort(me->rank);
    me->clique->changed.wait(lock, [&] { return me->running == 0; });
  }
  await_graphs(me);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const auto me = find(__func__, comm);
  if (me == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = ncclInProgress;
  std::unique_lock lock(me->clique->mutex);
  if (me->launching || (!me->deferred.empty() && ++me->polls < 2)) return ncclSuccess;
  ncclResult_t launched = ncclSuccess;
  if (!me->deferred.empty()) {
    const auto launches = std::exchange(me->deferred, {});
    me->launching = true;
    lock.unlock();
    for (const auto& launch : launches) {
      if (launched == ncclSuccess) launched = launch();
    }
    lock.lock();
    me->launching = false;
  }
  ncclResult_t& kept = me->clique->members[me->rank].error;
  if (kept == ncclSuccess) kept = launched;
  *error = kept == ncclSuccess ? poll_pending(*me) : kept;
  return ncclSuccess;
}

}  // extern "C"
