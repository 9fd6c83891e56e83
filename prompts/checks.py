"""What an answer must be like: the ``check`` of a prompt, in one of three kinds.

    {"kind": "code", "language": "python", "function": NAME, "parameters": [NAME...],
     "cases": [{"args": [...], "result": ...}...]}                cases may be empty where a task has no single result
    {"kind": "json_schema", "schema": {...}}                      JSON Schema, draft 2020-12, without outside references
    {"kind": "prose", "language": "en", "min_words": N, "max_words": N,
     "must_name": [["this", "or this"], ["and this"]]}

Here a check is only read and checked itself; answers are judged elsewhere.
"""

import keyword
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from jsonschema import Draft202012Validator, SchemaError
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Json = Any  # a value that came as JSON and is kept as it came
Words = Annotated[int, Field(ge=1)]
Point = Annotated[str, Field(pattern=r"^[^*\s][^*]*\*?$")]
Alternatives = Annotated[tuple[Point, ...], Field(min_length=1)]


class StrictModel(BaseModel):
    """Frozen: unknown fields, wrong types and NaN are refused; dumped under the names that files use."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True)


class Case(StrictModel):
    """One call of the function asked for: positional arguments and the result, both as JSON."""

    args: tuple[Json, ...]
    result: Json

    @field_validator("args", "result")
    @classmethod
    def _numbers_fit_a_double(cls, value: Json) -> Json:
        if not _fits(value):
            raise ValueError("a number in it is not finite, or beyond what a double holds")
        return value


class CodeCheck(StrictModel):
    """The answer holds Python that parses and defines ``function`` with ``parameters``; each case gives its result."""

    kind: Literal["code"]
    language: Literal["python"]
    function: str
    parameters: tuple[str, ...]
    cases: tuple[Case, ...]

    @model_validator(mode="after")
    def _names_and_cases_fit(self) -> Self:
        for name in (self.function, *self.parameters):
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"{name!r} is no Python name")
        if len(set(self.parameters)) != len(self.parameters):
            raise ValueError("a parameter is named twice")
        for number, case in enumerate(self.cases, 1):
            if len(case.args) != len(self.parameters):
                raise ValueError(f"case {number} has {len(case.args)} args for {len(self.parameters)} parameters")
        return self


class JsonCheck(StrictModel):
    """The answer is JSON that meets ``json_schema`` (the field is called ``schema`` in files and when dumped)."""

    kind: Literal["json_schema"]
    json_schema: dict[str, Json] = Field(alias="schema")

    @field_validator("json_schema")
    @classmethod
    def _schema_is_valid(cls, value: dict[str, Json]) -> dict[str, Json]:
        try:
            Draft202012Validator.check_schema(value)
        except SchemaError as error:
            raise ValueError(f"no valid JSON Schema (draft 2020-12) at {error.json_path}: {error.message[:200]}")
        for reference in _references(value):
            if not reference.startswith("#"):
                raise ValueError(f"refers to {reference!r}; only references within the schema (#/...) are followed")
        return value


class ProseCheck(StrictModel):
    """The answer is in ``language``, is as long as wanted and names one alternative of each list in ``must_name``.

    ``min_words`` and ``max_words`` are the accepted bounds: the length asked for with its tolerance (a quarter or more
    in our own prompts) already applied. None is no bound. A point is looked for as whole words; a ``*`` at its end lets
    the last word go on ("string*" finds strings).
    """

    kind: Literal["prose"]
    language: Literal["en", "de", "es", "fr"]
    min_words: Words | None = None
    max_words: Words | None = None
    must_name: tuple[Alternatives, ...] = ()

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"min_words {self.min_words} is above max_words {self.max_words}")
        return self


Check = Annotated[CodeCheck | JsonCheck | ProseCheck, Field(discriminator="kind")]


def _fits(value: Json) -> bool:
    if isinstance(value, dict):
        return all(_fits(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return all(_fits(inner) for inner in value)
    if not isinstance(value, int | float):
        return True
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _references(schema: Json) -> Iterable[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
