"""Who calls, and what he may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

EVERY_COLLECTION = "*"


class Scope(IntEnum):
    """How much a caller may do; each includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """A scope on collections.

    Attributes:
        scope: How much may be done.
        collections: On which collections: an id, or a pattern with "*" and "?".
    """

    scope: Scope
    collections: str = EVERY_COLLECTION


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller who showed that he is one.

    Attributes:
        name: For the log.
        grants: What he may do: any one of them suffices.
    """

    name: str
    grants: tuple[Grant, ...]

    def may(self, scope: Scope, collection: str) -> bool:
        """Whether he may do so much on a collection."""
        return any(grant.scope >= scope and fnmatchcase(collection, grant.collections) for grant in self.grants)

    def may_somewhere(self, scope: Scope) -> bool:
        """Whether he may do so much at all."""
        return any(grant.scope >= scope for grant in self.grants)

    def may_everywhere(self, scope: Scope) -> bool:
        """Whether he may do so much whatever the collection."""
        return any(grant.scope >= scope and grant.collections == EVERY_COLLECTION for grant in self.grants)
