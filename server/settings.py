"""Every setting of the server, read once: file < environment TWINLENS_… < flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

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
    # A message may hold a batch of photos; both sides of the wire use the same limit.
    max_message_bytes: int = Field(default=64 * MIB, ge=MIB, le=2**31 - 1)
    max_batch: int = Field(default=16, ge=1, le=1024)
    max_delay_ms: float = Field(default=2.0, ge=0, le=1000)
    max_items_in_flight: int = Field(default=2048, ge=1)
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
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"setting {name}: {reason}" if name else reason) from None
    except ValueError as error:  # TOML that does not parse
        msg = f"settings file {config}: {error}"
        raise SettingsError(msg) from None
