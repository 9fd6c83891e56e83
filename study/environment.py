"""What of a process's environment chooses devices and files: put on record, and set for a whole study where asked."""

import os
import re
from collections.abc import Iterable, Mapping

from evidence.redact import redact_json
from infra.launching.recipes import Arm, ExternalArm

RECORDED = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"),
    *("CUDA_DEVICE_ORDER", "NCCL_P2P_DISABLE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "PYTHONPATH"),
)


class OverrideError(ValueError):
    """An ``--env`` that cannot be used; the message ends with what to do. Exit code 2."""


def read_overrides(words: Iterable[str], arms: Iterable[Arm]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping. Raises OverrideError for one that is none, or that an arm sets itself."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise OverrideError(f"--env {name}: write NAME=VALUE, for example --env CUDA_VISIBLE_DEVICES=0,1")
        found[name] = value
    for arm in arms:
        own = {} if isinstance(arm, ExternalArm) else arm.environment
        for name in sorted(own.keys() & found.keys()):
            if own[name] != found[name]:
                raise OverrideError(
                    f"--env {name}: the arm {arm.name} sets it to {own[name]!r}; leave it out, or change the recipe"
                )
    return found


def recorded(overrides: Mapping[str, str]) -> dict[str, str]:
    """What stands in ``study.json``: the overrides, and what this process was given that chooses devices and files."""
    given = {name: os.environ[name] for name in RECORDED if name in os.environ}
    found: dict[str, str] = redact_json({**given, **overrides})
    return found
