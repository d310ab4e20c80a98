"""Which errors are a program's own, whatever its user gave it: they are never told as a fault of a file."""

from __future__ import annotations

import types

_ALWAYS = (ImportError, NameError, SyntaxError, NotImplementedError, MemoryError)


def is_program_fault(error: BaseException) -> bool:
    """Whether a program is wrong or its installation broken.

    A value of another kind in a configuration raises ValueError, TypeError, KeyError and the like, and AttributeError
    where it lacks what a right one has; a module, a class or an object of ours that lacks an attribute was written so.
    """
    if isinstance(error, AttributeError):
        owner = error.obj
        ours = type(owner).__module__.partition(".")[0] == __name__.partition(".")[0]
        return ours or isinstance(owner, types.ModuleType | type | types.FunctionType)
    return isinstance(error, _ALWAYS)
