"""Which class a GPU activity belongs to: by its category, and a kernel by its name.

The rules are tried in order and the first that fits decides; what fits none is "other". Names are those of the kernels
that SGLang, vLLM, llama.cpp and the libraries under them launch. Sources: NCCL and RCCL (``ncclDevKernel_*``), the
engines' own all-reduce (``cross_device_reduce_1stage``, csrc/custom_all_reduce.cuh), FlashInfer's and TensorRT-LLM's
(``allreduce_fusion_kernel_oneshot_lamport``), PyTorch's symmetric memory (``multimem_*``, ``one_shot_all_reduce``),
MSCCL++, NVSHMEM and DeepEP (``deep_ep::intranode::dispatch``): most of them do not have "nccl" in their names.

A name is all there is to go by, so the names with the most time stand beside each class for the reader to check.
"""

import re
from functools import lru_cache
from typing import Literal

KernelClass = Literal["matrix", "attention", "collective", "copy", "set", "other"]

# In the order in which an instant that several classes share is given to one of them: an instant in which a matrix
# kernel and a collective run at once is the matrix kernel's, so that the collective's time is the time it adds.
CLASSES: tuple[KernelClass, ...] = ("matrix", "attention", "other", "collective", "copy", "set")
GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})

_COLLECTIVE = re.compile(
    r"nccl|rccl|msccl|nvshmem|deep_ep::|deepep|oneccl"
    r"|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoall"
    r"|one_?shot_?all|two_?shot_?all|lamport|quickreduce|multimem|symm_?mem|barrier_all|broadcast_kernel_p2p"
    r"|moe_?(comm|a2a)|userbuffers|dispatch_ll|combine_ll",
    re.IGNORECASE,
)
_ATTENTION = re.compile(
    r"fmha|flash_?attn|flashattn|flash_?fwd|flash::|flash_?mla|::mla::|mla_|_mla|attention|(?<![a-z])attn|paged_?attn"
    r"|Batch(Prefill|Decode)With|SinglePrefill|SingleDecode|MergeState|merge_attn|merge_state|unified_attn"
    r"|^_fwd_(grouped_)?kernel|decode_grouped|flash_infer_(decode|prefill)|sdpa|lightning_attn|sparse_attn",
    re.IGNORECASE,
)
_MATRIX = re.compile(
    r"nvjet|gemm|gemv|matmul|cublas|cutlass|xmma|wgmma|splitk|split_k|marlin|machete|cijk_|triton_mm|_bmm|bmm_"
    r"|mul_mat|fused_moe_kernel|grouped_mm|scaled_mm|wvsplit|dot_kernel|llmm|gett_|hgemm|mmq|mmvq|mmvf",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"memcpy|direct_copy_kernel|CatArrayBatchedCopy|copy_all_layer_kv_cache|copy_blocks|swap_blocks|copy_kernel"
    r"|cpy_|transfer_kv",
    re.IGNORECASE,
)
_SET = re.compile(r"memset|FillFunctor|fill_kernel", re.IGNORECASE)
# Kernels whose names hold a word of a class they do not belong to.
_NEITHER = re.compile(
    r"create_flashinfer|flashinfer::norm|get_num_kv_splits|gemma_?(fused_?add_?)?rms_?norm", re.IGNORECASE
)


def activity_class(category: str, name: str) -> KernelClass:
    """The class of one GPU activity. ``category`` is one of ``GPU_CATEGORIES``."""
    if category == "gpu_memcpy":
        return "copy"
    if category == "gpu_memset":
        return "set"
    return kernel_class(name)


@lru_cache(maxsize=1 << 16)
def kernel_class(name: str) -> KernelClass:
    """The class of a kernel by its name. Template arguments count too: CUTLASS hides an attention kernel in one."""
    if _COLLECTIVE.search(name):
        return "collective"
    for rule, found in _RULES:
        if rule.search(_NEITHER.sub("", name)):
            return found
    return "other"


_RULES: tuple[tuple[re.Pattern[str], KernelClass], ...] = (
    (_ATTENTION, "attention"),
    (_COPY, "copy"),
    (_SET, "set"),
    (_MATRIX, "matrix"),
)
