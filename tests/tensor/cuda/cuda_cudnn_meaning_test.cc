// The meaning of cuDNN statuses.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"

namespace tessera::cuda {

TEST_CASE("statuses of cuDNN have the meaning of their row, else of their category") {
  CHECK(cudnn_meaning(0).kind == CudnnKind::kSuccess);
  CHECK(cudnn_meaning(4003).kind == CudnnKind::kOutOfMemory);
  CHECK(cudnn_meaning(4004).kind == CudnnKind::kOutOfMemory);
  for (const int refused : {3000, 3001, 3007, 3009, 3999})
    CHECK(cudnn_meaning(refused).kind == CudnnKind::kRefusal);
  for (const int failure : {1, 1001, 1002, 1008, 2000, 2008, 4000, 4001, 5000, 5003, 9999})
    CHECK(cudnn_meaning(failure).kind == CudnnKind::kFailure);
  CHECK(std::string(cudnn_meaning(2000).advice) == cudnn_meaning(2012).advice);
  CHECK(std::string(cudnn_meaning(5000).advice) != cudnn_meaning(2000).advice);
  CHECK(!std::string(cudnn_meaning(-7).advice).empty());
}

TEST_CASE("the text of a status of cuDNN says what failed and what to do") {
  CHECK(cudnn_message(2008, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH", "dims differ",
                      "cudnnBackendFinalize") ==
        std::string("cuDNN reports CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH (code 2008) in "
                    "cudnnBackendFinalize: dims differ; ") +
            cudnn_meaning(2008).advice);
  CHECK(cudnn_message(5000, "X", "", "Y").find("no more is said") != std::string::npos);
}

}  // namespace tessera::cuda
