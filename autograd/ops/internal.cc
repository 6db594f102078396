#include "tessera/autograd/ops/internal.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tessera/tensor/streams/stream.h"

namespace tessera {
namespace {

// Whether x [..., n] lies as a result of empty_rows with one of `kinds` does, and nothing else lies in its storage.
bool fills_storage(const Tensor& x, std::initializer_list<RowPitch> kinds) {
  if (x.ndim() == 0) return false;
  const std::int64_t width = x.dim(-1), rows = width > 0 ? x.numel() / width : 0;
  const std::optional<Tensor> matrix = rows > 0 ? x.try_view({rows, width}) : std::nullopt;
  if (!matrix || x.offset() != 0 || (width > 1 && matrix->strides()[1] != 1)) return false;
  const auto lies = [&](RowPitch kind) {
    const std::int64_t pitch = pitch_of(width, kind, x.options());
    return (rows == 1 || matrix->strides()[0] == pitch) &&
           static_cast<std::size_t>(rows * pitch) * dtype_size(x.dtype()) == x.storage().bytes();
  };
  return std::any_of(kinds.begin(), kinds.end(), lies);
}

}  // namespace

bool detail::gives_memory(const SavedVariable& saved, const BackwardContext& context,
                          std::initializer_list<RowPitch> kinds) {
  if (!context.frees_saved() || !saved.is_sole_owner()) return false;
  const Tensor& x = saved.unpack().tensor();
  return fills_storage(x, kinds) && x.storage().belongs_to(current_stream(x.device()));
}

}  // namespace tessera
