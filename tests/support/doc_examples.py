"""Runs the `>>>` examples of a text, `await` and all, and tells which came out otherwise.

The standard library's runner knows no `await` outside a function; its parser and its way of comparing are used here.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import doctest
import inspect
import io
import re
import traceback
import types
from contextlib import redirect_stdout
from typing import Any

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_examples(text: str, names: dict[str, Any], where: str, loop: asyncio.Runner) -> list[str]:
    """What did not come out as it is written, one report each.

    Args:
        text: Holds examples.
        names: What they may use; what they define is added.
        where: What the text is called in reports.
        loop: Runs what is awaited.
    """
    names.setdefault("__builtins__", builtins)
    checker = doctest.OutputChecker()
    reports = []
    for example in doctest.DocTestParser().get_examples(text, where):
        printed, error = _run(example.source, names, where, loop)
        flags = _FLAGS
        for flag, wanted in example.options.items():
            flags = flags | flag if wanted else flags & ~flag
        if error is None:
            good = example.exc_msg is None and checker.check_output(example.want, printed, flags)
        else:
            printed = traceback.format_exception_only(error)[-1]
            good = example.exc_msg is not None and checker.check_output(example.exc_msg, printed, flags)
        if not good:
            reports.append(
                f"{where}, example in line {example.lineno + 1}:\n{example.source}"
                f"expected:\n{example.exc_msg or example.want}got:\n{printed}"
            )
    return reports


def fenced(markdown: str) -> list[str]:
    """The blocks of Python in a page, each with as many empty lines before it as say where it stands."""
    return ["\n" * markdown.count("\n", 0, each.start(1)) + each.group(1) for each in _FENCE.finditer(markdown)]


def _run(source: str, names: dict[str, Any], where: str, loop: asyncio.Runner) -> tuple[str, Exception | None]:
    code = compile(source, f"<{where}>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            waited = types.FunctionType(code, names)()
            if inspect.iscoroutine(waited):
                loop.run(waited)
        except Exception as error:
            return printed.getvalue(), error
    return printed.getvalue(), None
