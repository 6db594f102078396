#include "tessera/nn/buffer.h"

#include <utility>

#include "tessera/nn/unregistered.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.Buffer";

}  // namespace

struct Buffer::Impl {
  std::string name;
  BufferOptions options;
  Tensor tensor;  // undefined until materialised
};

Buffer::Buffer(BufferOptions options) : impl_(std::make_shared<Impl>()), original_(true) {
  TESSERA_CHECK(options.init != nullptr, kWhere,
                "a buffer of shape {} needs an initializer, for instance init::zeros()",
                options.shape.str());
  for (std::int64_t extent : options.shape) {
    TESSERA_CHECK(extent >= 0, kWhere, "shape {} has a negative extent", options.shape.str());
  }
  impl_->options = std::move(options);
  detail::note_constructed(this, detail::MemberKind::kBuffer);
}

Buffer::Buffer(const Buffer& other) : impl_(other.impl_) {}

Buffer::~Buffer() {
  if (original_) detail::forget_constructed(this);
}

const std::string& Buffer::name() const { return impl_->name; }
const Shape& Buffer::shape() const { return impl_->options.shape; }
DType Buffer::dtype() const { return impl_->options.dtype; }
bool Buffer::is_persistent() const { return impl_->options.persistent; }
bool Buffer::keeps_dtype() const { return impl_->options.keep_dtype; }
bool Buffer::is_materialized() const { return impl_->tensor.defined(); }

const Tensor& Buffer::tensor() const {
  TESSERA_CHECK_AS(StateError, is_materialized(), kWhere,
                   "buffer \"{}\" of shape {} has no elements yet: call nn::initialize(model), or "
                   "load a checkpoint; if that was done, register its module in the model",
                   name(), shape().str());
  return impl_->tensor;
}

void Buffer::materialize(Device device) {
  if (is_materialized()) return;
  impl_->tensor = Tensor::empty_named(shape(), {.dtype = dtype(), .device = device},
                                      MemoryCategory::kOther, name());
}

void Buffer::reset(random::Key key) { impl_->options.init(tensor(), key, random::whole(shape())); }

void Buffer::to(Device device, DType dtype) {
  if (is_materialized() && (tensor().device() != device || tensor().dtype() != dtype)) {
    const Tensor moved = to_device(tensor(), device);
    const Tensor converted = Tensor::empty_named(shape(), {.dtype = dtype, .device = device},
                                                 MemoryCategory::kOther, name());
    copy_(converted, moved);
    impl_->tensor = converted;
  }
  impl_->options.dtype = dtype;  // last: what fails changes nothing
}

void Buffer::set_name(std::string name) { impl_->name = std::move(name); }

}  // namespace tessera::nn
