"""Text encoders of sentence-transformers and plain BERT-like models: a text-only bundle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from torch import nn

from twinlens.encoders.manifest import Lineage
from twinlens.training.checkpoint import CheckpointMeta
from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import TextExport, frozen
from twinlens.training.json_object import read_json_object
from twinlens.training.pull.checkpoints import fit_weights, read_weights
from twinlens.training.pull.pulled import PulledTowers
from twinlens.training.pull.source import Choices
from twinlens.training.pull.tokenizer_choice import check_vocabulary
from twinlens.training.pull.transformers_models import load_model
from twinlens.training.text_checkpoint import TextEncoderSpec, save_text_checkpoint
from twinlens.training.tokenizers import TokenizerExport, hugging_face_tokenizer
from twinlens.training.towers.masked_text import MaskedTextTower, UnitLength
from twinlens.training.towers.transformers_config import as_data
from twinlens.training.towers.transformers_text import ACTIVATIONS, DenseConfig, dense

# Encoders that hide padding by a mask, each compared with its padded self in the tests.
MODEL_TYPES: Final = ("albert", "bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")
_WITHOUT_POOLER = ("bert", "camembert", "mpnet", "roberta", "xlm-roberta", "albert")
# Their first position is the one behind the padding's id.
_POSITIONS_BEHIND_PADDING = ("camembert", "mpnet", "roberta", "xlm-roberta")
_NO_LIMIT = 1_000_000
_NORMALIZE: Final[tuple[Literal["normalize"], nn.Module]] = ("normalize", UnitLength())


def sentence_model(folder: Path, name: str, choices: Choices) -> PulledTowers:
    """Builds the modules that `modules.json` lists: Transformer, Pooling, then Dense and Normalize.

    Raises:
        ExportError: if it lists others, or files are missing or do not fit.
    """
    steps = _modules(folder)
    kinds = [kind for kind, _ in steps]
    if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= {"Dense", "Normalize"}:
        raise ExportError(
            f"{name} is a chain of {', '.join(kinds)}; supported is Transformer, Pooling, then Dense and Normalize"
        )
    _refuse_prompt(folder, name)
    inner = steps[0][1]
    config = read_json_object(inner / "config.json")
    model_type = str(config.get("model_type") or "")
    if model_type not in MODEL_TYPES:
        raise ExportError(
            f"{name}: a text encoder of type {model_type!r} is not supported: known are {', '.join(MODEL_TYPES)}"
        )
    head = [_dense(path, name) if kind == "Dense" else _NORMALIZE for kind, path in steps[2:]]
    return _text_only(inner, config, name, choices, pooling=_pooling(steps[1][1], name), head=head)


def plain_text_model(folder: Path, config: dict[str, Any], name: str, choices: Choices) -> PulledTowers:
    """Builds an encoder whose folder says nothing of pooling: the mean of its tokens, as sentence-transformers does.

    Raises:
        ExportError: if files are missing or do not fit.
    """
    return _text_only(folder, config, name, choices, pooling="mean", head=[])


def _text_only(
    folder: Path,
    config: dict[str, Any],
    name: str,
    choices: Choices,
    *,
    pooling: str,
    head: Sequence[tuple[DenseConfig | Literal["normalize"], nn.Module]],
) -> PulledTowers:
    kind = str(config["model_type"])
    options = {"add_pooling_layer": False} if kind in _WITHOUT_POOLER else {}
    encoder: Any = load_model(folder, "AutoModel", name, **options)
    sentence = read_json_object(folder / "sentence_bert_config.json")
    if sentence.get("do_lower_case"):
        raise ExportError(f"{name} lower-cases texts before its tokenizer (do_lower_case), which serving does not do")
    tokenizer = _tokenizer(choices.tokenizer or folder, folder, encoder.config, sentence)
    check_vocabulary(tokenizer, int(encoder.config.vocab_size), name)
    tower = frozen(MaskedTextTower(encoder, pooling, [module for _, module in head]))
    text = TextExport(
        tower,
        tokenizer.spec,
        tokenizer.json,
        reference=tower,
        architecture=type(encoder).__name__,
        pooling=pooling,
        activation=str(getattr(encoder.config, "hidden_act", "") or getattr(encoder.config, "activation", "")),
    )
    method = f"transformers {kind} {name}"
    layers = [layer if layer == "normalize" else layer.model_dump() for layer, _ in head]
    described = {"config": as_data(encoder.config), "pooling": pooling, "head": layers, "projection": False}
    spec = TextEncoderSpec({"transformers": described}, tokenizer.spec, tokenizer.json, name)
    keep = partial(save_text_checkpoint, spec=spec, tower=tower, meta=CheckpointMeta(lineage=Lineage(method=method)))
    return PulledTowers(None, text, name, method, keep=keep)


def _tokenizer(source: Path | str, folder: Path, config: Any, sentence: dict[str, Any]) -> TokenizerExport:
    positions = int(config.max_position_embeddings)
    if config.model_type in _POSITIONS_BEHIND_PADDING:
        positions -= int(config.pad_token_id) + 1
    stated = sentence.get("max_seq_length") or read_json_object(folder / "tokenizer_config.json").get(
        "model_max_length"
    )
    limit = int(stated) if stated and stated < _NO_LIMIT else positions
    return hugging_face_tokenizer(
        source, context_length=min(limit, positions), clean="none", pad="longest", attention_mask=True
    )


def _modules(folder: Path) -> list[tuple[str, Path]]:
    path = folder / "modules.json"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        entries = sorted(listed, key=lambda entry: entry["idx"])
        return [(str(entry["type"]).rpartition(".")[2], folder / str(entry["path"])) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{path} is not a list of modules: {first_line(error)}") from error


def _refuse_prompt(folder: Path, name: str) -> None:
    stated = read_json_object(folder / "config_sentence_transformers.json")
    default = stated.get("default_prompt_name")
    if default and (stated.get("prompts") or {}).get(default):
        raise ExportError(f"{name} puts the prompt {default!r} before every text, which serving does not do")


def _pooling(folder: Path, name: str) -> str:
    config = read_json_object(folder / "config.json")
    named = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    }
    modes = [mode for key, mode in named.items() if config.get(key)]
    modes += [key for key in config if key.startswith("pooling_mode_") and config[key] and key not in named]
    if not modes and config.get("pooling_mode"):
        stated = config["pooling_mode"]
        modes = [stated] if isinstance(stated, str) else list(stated)
    if len(modes) != 1 or modes[0] not in named.values():
        raise ExportError(f"{name} pools by {', '.join(modes) or 'nothing'}; supported is one of cls, mean, max")
    return str(modes[0])


def _dense(folder: Path, name: str) -> tuple[DenseConfig, nn.Module]:
    config = read_json_object(folder / "config.json")
    activation = str(config.get("activation_function") or "Identity").rpartition(".")[2]
    if activation not in ACTIVATIONS or not {"in_features", "out_features"} <= config.keys():
        raise ExportError(f"{name}: the layer in {folder.name} is not supported (activation {activation})")
    layer = DenseConfig.model_validate(
        {
            "inputs": int(config["in_features"]),
            "outputs": int(config["out_features"]),
            "bias": bool(config.get("bias", True)),
            "activation": activation,
        }
    )
    file = next(
        (folder / each for each in ("model.safetensors", "pytorch_model.bin") if (folder / each).is_file()), None
    )
    if file is None:
        raise ExportError(f"{name}: {folder.name} holds no weights (model.safetensors or pytorch_model.bin)")
    module = dense(layer)
    fit_weights(module[0], read_weights(file))
    return layer, module
