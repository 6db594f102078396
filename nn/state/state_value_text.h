#pragma once

/// The values of a StateDict other than tensors as text, for files. All come back bit for bit, NaN and
/// infinities included.

#include <optional>
#include <string>
#include <string_view>

#include "tessera/nn/state/state_dict.h"

namespace tessera::nn {

/// "true", "12", "0.001", "nan:7ff8000000000001", or the text itself. The value is no tensor.
std::string state_value_text(const StateValue& value);

/// The value of this kind (state_value_kind) that has the text; nothing if there is none.
std::optional<StateValue> parse_state_value(std::string_view kind, std::string_view text);

}  // namespace tessera::nn
