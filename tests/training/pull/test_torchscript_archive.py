from __future__ import annotations

import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from twinlens.training.export.errors import ExportError
from twinlens.training.pull.checkpoints import fit_weights, read_weights

# Pieces of a hand-made pickle: an instance of a class of the archive, a storage of four numbers, a matrix of them.
MODULE = b"c__torch__\nM\n)\x81"
STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
TENSOR = REBUILD + b"(" + STORAGE + b"K\x00K\x02K\x02\x86K\x02K\x01\x86tR"


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


class Scripted(nn.Module):
    """As OpenAI's archives: half precision, constants among the weights."""

    def __init__(self, *, constants: bool = True) -> None:
        super().__init__()
        self.body = model().half()
        self.sizes = [1, 2, 3]
        self.names = {"a": 1.5}
        self.label = "text"
        self.tied = self.body[0].weight  # type: ignore[index]
        if constants:
            for name in ("input_resolution", "context_length", "vocab_size"):
                self.register_buffer(name, torch.tensor(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.body(x)
        return result


def test_a_torchscript_archive_is_read_as_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_scripted(Scripted(), tmp_path / "ViT-B-32.pt")
    monkeypatch.setattr(torch.jit, "load", None)  # never needed
    weights = read_weights(tmp_path / "ViT-B-32.pt")
    assert weights.openai
    other = model()
    nn.init.zeros_(other.get_parameter("0.weight"))
    fit_weights(other, weights)  # the tied copy stands outside of the prefix
    torch.testing.assert_close(other.state_dict()["0.weight"], model().half().float().state_dict()["0.weight"])

    save_scripted(Scripted(constants=False), tmp_path / "own.pt", traced=False)
    own = read_weights(tmp_path / "own.pt")
    assert not own.openai
    assert own.tensors["tied"].data_ptr() == own.tensors["body.0.weight"].data_ptr()
    assert {name for name in own.tensors if name != "tied"} == {f"body.{name}" for name in model().state_dict()}


def mapping(**values: bytes) -> bytes:
    return b"}" + b"".join(b"X" + len(k).to_bytes(4, "little") + k.encode() + v + b"s" for k, v in values.items())


def attributes(**values: bytes) -> bytes:
    return mapping(**values) + b"b"


def archive_of(path: Path, pickled: bytes, **options: Any) -> Path:
    """A TorchScript archive with a hand-made pickle and one storage."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("x/constants.pkl", b"")
        archive.writestr("x/data.pkl", b"\x80\x02" + pickled + b".")
        archive.writestr("x/data/0", bytes(16))
    return path


def test_a_hand_made_archive_is_read(tmp_path: Path) -> None:
    """So that what is refused below is refused for what makes it different."""
    path = archive_of(tmp_path / "fine.pt", MODULE + attributes(w=TENSOR))
    torch.testing.assert_close(read_weights(path).tensors, {"w": torch.zeros(2, 2)})


SHARED = MODULE + attributes(a=b"h\x00", b=b"h\x00") + b"q\x00"


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        pytest.param(b"cos\nsystem\nX\x0b\x00\x00\x00touch owned\x85R", r"it asks for os\.system", id="calls"),
        pytest.param(b"cbuiltins\ngetattr\n", r"it asks for builtins\.getattr", id="looks for what to call"),
        pytest.param(TENSOR.replace(b"tR", b"tR)R"), "not callable", id="calls a tensor"),
        pytest.param(MODULE + attributes(w=TENSOR.replace(b"K\x02", b"K\x09")), "out of bounds", id="reads beyond"),
        pytest.param(REBUILD + b"N" + mapping(__defaults__=b")") + b"\x86b", "attributes to function", id="function"),
        pytest.param(b"c__torch__\nM\n" + attributes(w=TENSOR), "attributes to type", id="class"),
        pytest.param(TENSOR + attributes(w=TENSOR), "attributes to Tensor", id="tensor"),
        pytest.param(MODULE + b"K\x01b", "attributes to _Module", id="attributes without names"),
        pytest.param(MODULE + b"q\x00" + attributes(w=b"h\x00"), "without an end", id="a module inside itself"),
        pytest.param(MODULE + b"q\x00" + SHARED * 60, "without an end", id="a module 2**60 times"),
        pytest.param(b"K\x01Q", "cannot unpack", id="no storage"),
        pytest.param(b"\xff", "255", id="no pickle"),
    ],
)
def test_an_archive_that_asks_for_more_is_refused_in_one_line(
    pickled: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match=f"not a TorchScript archive of plain tensors: .*{reason}") as caught:
        read_weights(archive_of(tmp_path / "hostile.pt", pickled))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "owned").exists()


def test_a_pickle_does_not_decide_how_much_memory_is_taken(tmp_path: Path) -> None:
    sixteen_million = (1 << 24).to_bytes(4, "little")
    path = archive_of(tmp_path / "hostile.pt", MODULE + b"r" + sixteen_million + attributes(w=TENSOR))
    tracemalloc.start()
    read_weights(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "bomb.pt", MODULE + attributes(w=TENSOR), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ExportError, match=r"data\.pkl is compressed"):
        read_weights(path)


def test_every_flipped_byte_is_refused_in_one_line_or_changes_numbers_only(tmp_path: Path) -> None:
    whole = archive_of(tmp_path / "whole.pt", MODULE + attributes(w=TENSOR)).read_bytes()
    refusals = []
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        (tmp_path / "flipped.pt").write_bytes(flipped)
        try:
            read_weights(tmp_path / "flipped.pt")
        except ExportError as error:
            refusals.append(str(error))
    assert len(refusals) > len(whole) / 4
    assert not any("\n" in refusal for refusal in refusals)


def test_a_cut_off_torchscript_archive_is_refused(tmp_path: Path) -> None:
    save_scripted(Scripted(), tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "cut.pt", "w") as cut:
        for name in whole.namelist():
            cut.writestr(name, whole.read(name)[:8] if "/data/" in name else whole.read(name))
    with pytest.raises(ExportError, match=r"cut\.pt is not a TorchScript archive of plain tensors"):
        read_weights(tmp_path / "cut.pt")


def save_scripted(module: nn.Module, path: Path, *, traced: bool = True) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates what such archives were made with
        trace: Any = torch.jit.trace
        script: Any = torch.jit.script
        module = module.eval()
        torch.jit.save(trace(module, torch.zeros(1, 3).half()) if traced else script(module), path)
