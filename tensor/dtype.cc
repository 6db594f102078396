#include "tessera/tensor/dtype.h"

#include "tessera/tensor/check.h"

namespace tessera {

void throw_unsupported_dtype(DType dtype, const char* where) {
  throw_error<InvalidArgument>(where, "dtype {} is not supported here; cast the tensor first",
                               dtype_name(dtype));
}

}  // namespace tessera
