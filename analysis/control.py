"""What the control, the baseline against itself, says against every difference in a comparison."""

from collections.abc import Mapping
from typing import Any


def doubt(control: Mapping[str, Any] | None) -> str | None:
    """That the baseline differed from itself beyond its interval, over launches or, of one launch, over prompts.

    None where it did not, or nothing is known of it.
    """
    if control is None or control.get("ratio") is None:
        return None
    bounds = control.get("interval") or control.get("prompt_sampling_interval")
    if bounds is None or bounds[0] <= 1 <= bounds[1]:
        return None
    by = abs(control["ratio"] - 1)
    shown = f"{by:.0%}" if by >= 0.1 else f"{by:.1%}" if by >= 0.01 else f"{by:.2%}"
    over = "" if control.get("interval") else " over prompts"
    return (
        f"The baseline differed from itself by {shown.replace('%', ' %')} (ratio {control['ratio']:.3f}"
        f" [{bounds[0]:.3f}, {bounds[1]:.3f}]{over}): no difference of that size means anything here"
    )
