"""Finds the Python code in an answer and checks that it defines the function asked for. Nothing is run here.

Code is parsed by the Python that runs the analysis: syntax newer than that one's is a syntax error here.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Sequence

# Possessive throughout: a line that is no fence is given up at once, not tried at every length of every part.
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^`\s]*+)[^`]*+$")
_PYTHON = ("", "python", "py", "python3")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class AnswerError(Exception):
    """The answer holds no usable code; the message says what is wrong with it."""


def code_for(text: str, function: str, parameters: Sequence[str]) -> str:
    """The code of ``text`` that defines ``function`` with ``parameters``; raises AnswerError.

    Of several fenced blocks it is the first that defines the function; failing that, all blocks one after the other,
    for answers broken into parts. Without a fence it is the whole text.
    """
    blocks = fenced_blocks(text)
    sources = [*blocks, "\n\n".join(blocks)] if blocks else [text]
    problems: list[str] = []
    for source in sources:
        try:
            found = _definition(_parsed(source), function)
        except AnswerError as error:
            problems.append(str(error))
            continue
        _refuse_other_parameters(found, parameters)
        return source
    # A block that does not parse tells more than that another one defines nothing.
    raise AnswerError(next((problem for problem in problems if problem.startswith("does not parse")), problems[0]))


def fenced_blocks(text: str) -> list[str]:
    """The fenced blocks marked as Python or not marked, in order; a last one that is never closed counts."""
    blocks: list[str] = []
    lines: list[str] = []
    mark: str | None = None
    keep = False
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if mark is None:
            if fence:
                mark, keep, lines = fence.group(1), fence.group(2).lower() in _PYTHON, []
        elif fence and fence.group(1)[0] == mark[0] and len(fence.group(1)) >= len(mark) and not fence.group(2):
            if keep:
                blocks.append(textwrap.dedent("\n".join(lines)))
            mark = None
        else:
            lines.append(line)
    if mark is not None and keep:
        blocks.append(textwrap.dedent("\n".join(lines)))
    return blocks


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in an answer is not this program's warning
            return ast.parse(source)
    except SyntaxError as error:
        raise AnswerError(f"does not parse: {error.msg}, line {error.lineno}")
    except (ValueError, RecursionError, MemoryError) as error:
        raise AnswerError(f"does not parse: {error}")


def _definition(module: ast.Module, function: str) -> Function:
    found = [node for node in module.body if isinstance(node, Function) and node.name == function]
    if not found:
        raise AnswerError(f"defines no function {function!r} at top level")
    return found[-1]  # the one that stands once the code is loaded


def _refuse_other_parameters(found: Function, parameters: Sequence[str]) -> None:
    given = [argument.arg for argument in (*found.args.posonlyargs, *found.args.args)]
    n_needed = len(given) - len(found.args.defaults)
    keywords_needed = [a.arg for a, d in zip(found.args.kwonlyargs, found.args.kw_defaults, strict=True) if d is None]
    if given[: len(parameters)] != list(parameters) or n_needed > len(parameters) or keywords_needed:
        shown = ", ".join([*given, *keywords_needed])
        raise AnswerError(f"defines {found.name}({shown}) where {found.name}({', '.join(parameters)}) was asked for")
