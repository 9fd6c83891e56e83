"""What every table of a scenario or study file is: frozen and strict; and the ranges that several of them share."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Tokens = Annotated[int, Field(gt=0, le=10_000_000)]
Seconds = Annotated[float, Field(gt=0, le=1_000_000)]
Requests = Annotated[int, Field(ge=1, le=1_000_000)]
Order = Literal["shuffled", "blocked", "listed"]
Endpoint = Literal["chat", "completions"]


class Section(BaseModel):
    """A frozen table of a scenario: unknown keys, wrong types, inf and nan are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
