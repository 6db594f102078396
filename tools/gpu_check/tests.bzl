"""The tests of the bundle: each is a target of //tests, with the settings of its program.

tools/check_gpu.py compares them with the BUILD files: no test may be missing or different.
"""

load("//tools/cuda:cuda_library.bzl", "if_cudnn", "if_nccl")

# Programs that run with the GPU as the default device; tests on several ranks share one GPU. <test>_cuda.
ON_CUDA = [
    "//tests/autograd:engine_test",
    "//tests/autograd:features_test",
    "//tests/autograd/ops:attention_conv_test",
    "//tests/autograd/ops:composed_test",
    "//tests/autograd/ops:fused_test",
    "//tests/autograd/ops:index_test",
    "//tests/autograd/ops:nn_test",
    "//tests/autograd/ops:ops_test",
    "//tests/autograd/ops:products_test",
    "//tests/autograd:threads_test",
    "//tests/autograd:variable_test",
    "//tests/distributed:collectives_test",
    "//tests/distributed/launch:launch_device_test",
    "//tests/distributed/mesh:mesh_ranks_test",
    "//tests/distributed/tensor_parallel:tensor_parallel_test",
    "//tests/fsdp/seeds:processes_test",
    "//tests/fsdp/precision:clip_test",
    "//tests/fsdp/schedule:collectives_test",
    "//tests/fsdp/schedule:delays_test",
    "//tests/fsdp/schedule:events_test",
    "//tests/fsdp:fsdp_test",
    "//tests/fsdp/training:matrix_wide_test",
    "//tests/fsdp/memory:memory_test",
    "//tests/fsdp/schedule:overlap_test",
    "//tests/fsdp:places_test",
    "//tests/fsdp/wrap:policy_test",
    "//tests/fsdp/precision:precision_test",
    "//tests/fsdp/training:random_programs_test",
    "//tests/fsdp/checkpoint:checkpoint_test",
    "//tests/fsdp/state:state_test",
    "//tests/fsdp/training:training_test",
    "//tests/models/language:cuda_graphs_test",
    "//tests/models/language:loss_curve_test",
    "//tests/models/language:precision_test",
    "//tests/models/language:same_curve_test",
    "//tests/models/language:trainer_test",
    "//tests/models/parity:parity_test",
    "//tests/models:encoder_decoder_test",
    "//tests/models:first_bad_tensor_test",
    "//tests/models:generate_ranks_test",
    "//tests/models:generate_test",
    "//tests/models:gpt_test",
    "//tests/models:llama_test",
    "//tests/models:mixture_of_experts_ranks_test",
    "//tests/models:mixture_of_experts_test",
    "//tests/models:models_test",
    "//tests/models:parallelize_dense_test",
    "//tests/models:trainer_test",
    "//tests/models:transformer_test",
    "//tests/nn/layers:attention_test",
    "//tests/nn/layers:conv_layers_test",
    "//tests/nn/layers:layers_test",
    "//tests/nn/layers:norm_layers_test",
    "//tests/nn/layers:rnn_test",
    "//tests/nn/layers:sync_batch_norm_ranks_test",
    "//tests/nn/layers:transformer_test",
    "//tests/nn/optim:around_optim_test",
    "//tests/nn/optim:muon_ranks_test",
    "//tests/nn/optim:optim_test",
    "//tests/nn/parity:parity_test",
    "//tests/nn:accuracy_test",
    "//tests/nn:gradients_test",
    "//tests/nn:loss_test",
    "//tests/nn:mesh_ranks_test",
    "//tests/nn:module_test",
    "//tests/nn:parameter_test",
    "//tests/nn:state_test",
    "//tests/tensor/every_operation:every_operation_test",
    "//tests/tensor/ops:attention_conv_test",
    "//tests/tensor/ops:composed_test",
    "//tests/tensor/ops:elementwise_test",
    "//tests/tensor/ops:matmul_test",
    "//tests/tensor/ops:nn_test",
    "//tests/tensor/ops:index_test",
    "//tests/tensor/ops:reduce_test",
    "//tests/tensor/ops:overlap_test",
    "//tests/tensor/ops:properties_test",
    "//tests/tensor/ops:products_test",
    "//tests/tensor:random_test",
    "//tests/tensor/io:safetensors_test",
    "//tests/tensor:tensor_test",
]

# The same with their own settings.
_UNCHECKED = {"TESSERA_TEST_CHECKED": "0"}
ON_CUDA_WITH = {
    "//tests/fsdp/seeds:nested_test": _UNCHECKED,
    "//tests/fsdp/seeds:seeds_test": _UNCHECKED,
    "//tests/fsdp/training:composition_test": _UNCHECKED,
    "//tests/fsdp/training:matrix_test": _UNCHECKED,
    "//tests/fsdp/training:recompute_test": _UNCHECKED,
    "//tests/fsdp/memory:sizes_test": {"TESSERA_POISON": "1"},
    "//tests/tensor:poison_test": {"TESSERA_POISON": "1"},
}

# Those among them that also run with a GPU for each rank, connected by NCCL. <test>_nccl.
ON_NCCL = [
    "//tests/distributed:collectives_test",
    "//tests/distributed/mesh:mesh_ranks_test",
    "//tests/fsdp/seeds:processes_test",
    "//tests/fsdp/precision:clip_test",
    "//tests/fsdp:fsdp_test",
    "//tests/fsdp:places_test",
    "//tests/fsdp/training:training_test",
    "//tests/models/language:cuda_graphs_test",
]

# Programs that choose devices themselves and say how many GPUs they need.
OWN_DEVICES = {
    "//tests/distributed/nccl:nccl_failure_test": 3,
    "//tests/distributed/nccl:nccl_group_test": 4,
    "//tests/gpu:attention_kernels_test": 1,
    "//tests/gpu:attention_offers_test": 1,
    "//tests/gpu:axpby_list_kernel_test": 1,
    "//tests/gpu:channel_norm_kernels_test": 1,
    "//tests/gpu:conv_kernels_test": 1,
    "//tests/gpu:core_gpu_test": 1,
    "//tests/gpu:cross_entropy_kernels_test": 1,
    "//tests/gpu:elementwise_kernels_test": 1,
    "//tests/gpu:graph_gpu_test": 1,
    "//tests/gpu:indexed_kernels_test": 1,
    "//tests/gpu:line_kernels_test": 1,
    "//tests/gpu:matmul_kernels_test": 1,
    "//tests/gpu:nccl_graph_gpu_test": 2,
    "//tests/gpu:optimizer_kernels_test": 1,
    "//tests/gpu:pool_kernels_test": 1,
    "//tests/gpu:preflight_test": 1,
    "//tests/gpu:reduce_kernels_test": 1,
    "//tests/gpu:row_norm_kernels_test": 1,
    "//tests/gpu:softmax_kernels_test": 1,
    "//tests/gpu:squares_list_kernel_test": 1,
    "//tests/gpu:two_gpus_test": 2,
    "//tests/models:cpu_gpu_losses_test": 1,
    "//tests/program:cuda_runs_test": 1,
}

# The same on several ranks, with both transports. <test>_local, <test>_nccl.
OWN_RANKS = {
    "//tests/gpu:local_collectives_gpu_test": 1,
    "//tests/gpu:local_collectives_gpus_test": 2,
}

# Versions that the machine's libraries report: no GPU needed.
LIBRARIES = [
    "//tests/gpu:cublas_loading_test",
    "//tests/gpu:cublas_status_test",
    "//tests/gpu:error_names_test",
] + if_cudnn(["//tests/gpu:cudnn_names_test"]) + if_nccl(["//tests/gpu:nccl_names_test"])

# Tests that are not in the bundle, and why.
LEFT_OUT = {
    "//tests/build:rank_environment_gpu_test_local": "about what Bazel tells a test",
    "//tests/build:rank_environment_gpu_test_nccl": "about what Bazel tells a test",
    "//tests/fsdp/training:random_programs_nightly_test_cuda": "random_programs_test with 1,000 other programs: takes long",
    "//tests/gpu:cudnn_plans_test": "on a driver that only holds kernels, which must not come before a real one",
    "//tests/tools/gpu_benchmarks:gpu_benchmarks_test": "the benchmarks once and small, which the bundle runs in full",
}

# program: <program>_cases has its test cases. gpus, device, transport: TESSERA_TEST_GPUS, ..._DEVICE, ..._TRANSPORT.
# settings: of the environment.
def _how(program, gpus, device = "cpu", transport = "local", settings = {}):
    return struct(program = program, gpus = gpus, device = device, transport = transport, settings = settings)

GPU_TESTS = dict(
    [(test + "_cuda", _how(test, 1, "cuda")) for test in ON_CUDA] +
    [(test + "_nccl", _how(test, 2, "cuda", "nccl")) for test in ON_NCCL] +
    [(test, _how(test, gpus)) for test, gpus in OWN_DEVICES.items()] +
    [(test + "_local", _how(test, gpus)) for test, gpus in OWN_RANKS.items()] +
    [(test + "_nccl", _how(test, gpus, transport = "nccl")) for test, gpus in OWN_RANKS.items()] +
    [(test, _how(test, 0)) for test in LIBRARIES] +
    [(test + "_cuda", _how(test, 1, "cuda", settings = settings)) for test, settings in ON_CUDA_WITH.items()],
)
