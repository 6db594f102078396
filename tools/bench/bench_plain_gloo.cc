#include "tessera/tools/bench/bench_plain_gloo.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>

#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/gloo_rendezvous.h"

namespace tessera {

struct PlainGloo::Impl {
  std::shared_ptr<gloo::Context> context;
  std::uint32_t tag = 0;
};

PlainGloo::PlainGloo(int rank, int size, const std::string& folder)
    : impl_(std::make_unique<Impl>()) {
  impl_->context =
      distributed::connect_with_all({.group = "plain",
                                     .rank = rank,
                                     .size = size,
                                     .store = std::make_shared<distributed::FolderStore>(folder),
                                     .address = "127.0.0.1"});
}

PlainGloo::~PlainGloo() = default;

void PlainGloo::all_gather(float* in, float* out, std::size_t count) {
  gloo::AllgatherOptions options(impl_->context);
  options.setInput(in, count);
  options.setOutput(out, count * static_cast<std::size_t>(impl_->context->size));
  options.setTag(++impl_->tag);
  gloo::allgather(options);
}

void PlainGloo::all_reduce(float* in, float* out, std::size_t count) {
  gloo::AllreduceOptions options(impl_->context);
  options.setInput(in, count);
  options.setOutput(out, count);
  using Function = void (*)(void*, const void*, const void*, std::size_t);
  options.setReduceFunction(static_cast<Function>(&gloo::sum<float>));
  options.setTag(++impl_->tag);
  gloo::allreduce(options);
}

void PlainGloo::broadcast(float* data, std::size_t count, int root) {
  gloo::BroadcastOptions options(impl_->context);
  options.setOutput(data, count);
  options.setRoot(root);
  options.setTag(++impl_->tag);
  gloo::broadcast(options);
}

void PlainGloo::all_to_all(float* in, float* out, std::size_t count) {
  gloo::AlltoallOptions options(impl_->context);
  options.setInput(in, count);
  options.setOutput(out, count);
  options.setTag(++impl_->tag);
  gloo::alltoall(options);
}

void PlainGloo::barrier() {
  gloo::BarrierOptions options(impl_->context);
  options.setTag(++impl_->tag);
  gloo::barrier(options);
}

}  // namespace tessera
