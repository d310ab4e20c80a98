"""What each method asks of its caller. A method that is not in this table is refused to whoever needs a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twinlens.server.core.caller import Scope


@dataclass(frozen=True, slots=True)
class Need:
    """What a method asks for.

    Attributes:
        scope: How much a caller must be allowed to do, on every collection that his request names.
        everywhere: He must be allowed to do so whatever the collection: for what belongs to no collection in
            particular, or to all.
    """

    scope: Scope
    everywhere: bool = False


_READ, _WRITE, _ADMIN = Need(Scope.READ), Need(Scope.WRITE), Need(Scope.ADMIN)

_NEEDS: Mapping[str, Mapping[str, Need]] = {
    "twinlens.v1.EmbeddingService": {"Embed": _READ, "EmbedStream": _READ},
    "twinlens.v1.SearchService": {"Search": _READ},
    "twinlens.v1.ClassificationService": {
        "Classify": _READ,
        "ClassifyStream": _READ,
        "GetLabelSet": _READ,
        "ListLabelSets": _READ,
        "PutLabelSet": Need(Scope.WRITE, everywhere=True),
        "DeleteLabelSet": Need(Scope.WRITE, everywhere=True),
    },
    "twinlens.v1.CollectionService": {
        "CreateCollection": _WRITE,
        "GetCollection": _READ,
        "ListCollections": _READ,  # names those that the caller may read
        "DeleteCollection": _ADMIN,
        "UpsertItems": _WRITE,
        "GetItem": _READ,
        "ListItems": _READ,
        "CountItems": _READ,
        "DeleteItems": _WRITE,
    },
    "twinlens.v1.CollectionOperationsService": {
        "MergeCollection": _ADMIN,
        "CheckCollection": _ADMIN,
        "BackupCollection": _ADMIN,
        # A backup may be of a collection that the request does not name.
        "RestoreCollection": Need(Scope.ADMIN, everywhere=True),
        "ListBackups": Need(Scope.ADMIN, everywhere=True),
        "DeleteBackup": Need(Scope.ADMIN, everywhere=True),
        "FindDuplicates": _READ,
        "ExportItems": _READ,
        "DropGeneration": _ADMIN,
        "CreateMetadataIndex": _ADMIN,
        "DeleteMetadataIndex": _ADMIN,
    },
    "twinlens.v1.ModelService": {"ListModels": _READ, "GetModel": _READ},
    "grpc.health.v1.Health": {"Check": _READ, "Watch": _READ, "List": _READ},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _READ},
}

NEEDS: Mapping[str, Need] = {
    f"/{service}/{method}": need for service, methods in _NEEDS.items() for method, need in methods.items()
}
HEALTH = "/grpc.health."
REFLECTION = "/grpc.reflection."
