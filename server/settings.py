"""Every setting of the server, read once: file < environment TWINLENS_… < flag."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from twinlens.server.core.fetching.hosts import HostList

MIB = 2**20


class SettingsError(ValueError):
    """A setting is unknown or out of range. The message is one line."""


class Settings(BaseSettings):
    """What a server runs with. Counts of threads: 0 means as many as fit the CPUs allowed."""

    model_config = SettingsConfigDict(frozen=True, env_prefix="TWINLENS_", extra="forbid")

    data: Path | None = None
    # Where backups of collections are kept: a folder, or an address on object storage (s3://…). Default: none are made.
    backups: str | None = None
    # A folder, NAME or NAME/VERSION in ./models, or an address on object storage (s3://…/NAME/VERSION), which is copied
    # to the cache first.
    bundle: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=50051, ge=0, le=65535)
    port_file: Path | None = None
    provider: Literal["auto", "cpu", "cuda", "openvino"] = "auto"
    # "tuned": provider and precision that `serve --tune` found fastest here for this bundle.
    precision: Literal["fp32", "bf16", "fp16", "int8", "tuned"] = "fp32"
    # Measure on starting what is fastest here, serve with it, and remember it for later starts with precision "tuned".
    tune: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    # "json": one object a line, for collectors of logs.
    log_format: Literal["text", "json"] = "text"
    # PEM files of the server's certificate chain and its key: both, or neither for a port without encryption.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # PEM file of the authorities that sign certificates of clients; then every client must bring one.
    tls_client_ca: Path | None = None
    # File of hashed tokens (docs/security.md), read again when it changes; then every call must bring a token.
    tokens: Path | None = None
    # Health and reflection answer callers without a token.
    open_health: bool = True
    open_reflection: bool = False
    # Hosts pictures may be fetched from, such as "images.example.com" or "*.example.com"; none: nothing is fetched.
    fetch_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    # Also by http://, which anyone on the way can read and change.
    fetch_http: bool = False
    # For one picture, with all redirections.
    fetch_timeout_s: float = Field(default=10.0, gt=0, le=600)
    # Of one picture.
    fetch_max_bytes: int = Field(default=32 * MIB, ge=1, le=64 * MIB)
    # Pictures fetched at a time, and as many again for bulk work.
    max_fetches: int = Field(default=16, ge=1, le=1024)
    # Where /metrics is served for Prometheus, by http; without a port it is not. 0 picks a free one.
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    # Where spans are sent, by OTLP over gRPC (extra "otel"), such as http://127.0.0.1:4317; none: there are none.
    otlp_endpoint: str | None = None
    # Which share of the calls that bring no decision of their own is traced.
    trace_ratio: float = Field(default=1.0, ge=0, le=1)
    # A message may hold a batch of photos; both sides of the wire use the same limit.
    max_message_bytes: int = Field(default=64 * MIB, ge=MIB, le=2**31 - 1)
    max_batch: int = Field(default=16, ge=1, le=1024)
    max_delay_ms: float = Field(default=2.0, ge=0, le=1000)
    max_items_in_flight: int = Field(default=2048, ge=1)
    # What a call of at most one batch may have to wait behind others; where it would be longer, it is refused at once.
    max_queue_s: float = Field(default=0.25, gt=0)
    max_bytes_in_flight: int = Field(default=512 * MIB, ge=MIB)
    label_cache_bytes: int = Field(default=128 * MIB, ge=0)
    example_cache_bytes: int = Field(default=256 * MIB, ge=0)
    prepare_threads: int = Field(default=0, ge=0, le=256)
    encode_threads: int = Field(default=0, ge=0, le=256)
    search_threads: int = Field(default=0, ge=0, le=256)
    io_threads: int = Field(default=4, ge=1, le=64)
    # Of long operations on collections (checks, backups, exports …) running at a time.
    max_operations: int = Field(default=4, ge=1, le=64)
    # What searches: "faiss", or "milvus:URI" of a server (http://HOST:PORT) or of a Milvus Lite file that ends in .db.
    index: str = "faiss"
    # With a Milvus server, which several servers share: where the pictures lie, a folder or an address (s3://…).
    pictures: str | None = None
    # What a Milvus server asks for, if anything.
    milvus_token: SecretStr = SecretStr("")
    # Of collections that are created without saying so.
    index_kind: Literal["auto", "flat", "hnsw", "ivf_flat", "ivf_pq"] = "auto"
    # Where merged vectors are searched; "auto": on a GPU where FAISS sees one.
    index_device: Literal["auto", "cpu", "cuda"] = "auto"
    # What the index of one collection may take before `auto` chooses a smaller kind; 0 means half of the machine's
    # memory.
    index_memory_mib: int = Field(default=0, ge=0)
    grace_s: float = Field(default=10.0, ge=0)
    canary_interval_s: float = Field(default=5.0, gt=0)
    canary_timeout_s: float = Field(default=10.0, gt=0)
    # A worker that is that long on one piece of work, and much longer than such work took before, is stuck: health goes
    # red and the worker is replaced.
    stuck_s: float = Field(default=4.0, gt=0)

    @field_validator("fetch_hosts", mode="before")
    @classmethod
    def _hosts(cls, value: object) -> object:
        return tuple(host.strip() for host in value.split(",") if host.strip()) if isinstance(value, str) else value

    @field_validator("fetch_hosts")
    @classmethod
    def _named_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        HostList(value)
        return value

    @model_validator(mode="after")
    def _key_and_certificate(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs both tls_cert and tls_key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("certificates of clients are checked over TLS only: give tls_cert and tls_key, too")
        return self

    @model_validator(mode="after")
    def _tuning_chooses_alone(self) -> Self:
        tuned = self.tune or self.precision == "tuned"
        if tuned and (self.provider != "auto" or self.precision not in {"fp32", "tuned"}):
            msg = "tuning chooses provider and precision by itself: leave them out"
            raise ValueError(msg)
        return self


def load_settings(config: Path | None = None, **flags: object) -> Settings:
    """Reads the settings of this process; flags that are None count as not given.

    Raises:
        SettingsError: one line naming the setting.
    """
    if config is not None and not config.is_file():
        msg = f"there is no settings file {config}"
        raise SettingsError(msg)

    class _WithFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=config)

    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    try:
        return _WithFile(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        unknown = first["type"] == "extra_forbidden"
        reason = "there is no such setting" if unknown else first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"setting {name}: {reason}" if name else reason) from None
    except ValueError as error:  # TOML that does not parse
        msg = f"settings file {config}: {error}"
        raise SettingsError(msg) from None
