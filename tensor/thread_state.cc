#include "tessera/tensor/thread_state.h"

namespace tessera::detail {

constinit thread_local ThreadState t_thread_state;

}  // namespace tessera::detail
