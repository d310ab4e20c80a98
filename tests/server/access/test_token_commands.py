"""`twinlens tokens`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlens.__main__ import main
from twinlens.server.access.keyring import Keyring
from twinlens.server.core.caller import Scope


def test_a_token_is_printed_once_and_good_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "made" / "tokens.toml"
    made = ["tokens", "new", "search-page", "--file", str(path), "--scope", "read", "--scope", "write:photos-*"]
    assert main([*made, "--rate", "50", "--days", "30"]) == 0
    token = capsys.readouterr().out.strip()
    holder = Keyring(path).find(token)
    assert holder is not None
    assert holder.caller.may(Scope.WRITE, "photos-1")
    assert not holder.caller.may(Scope.WRITE, "other")
    assert main(["tokens", "list", "--file", str(path)]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("search-page  read write:photos-*  50 calls/s  until ")
    assert token not in listed
    assert main(["tokens", "list", "--file", str(path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["scopes"], row["rate"]) == ("search-page", ["read", "write:photos-*"], 50.0)


def test_a_revoked_token_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokens.toml"
    monkeypatch.setenv("TWINLENS_TOKENS", str(path))
    assert main(["tokens", "new", "a", "--scope", "read"]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["tokens", "new", "b", "--scope", "admin"]) == 0
    assert main(["tokens", "revoke", "a"]) == 0
    assert Keyring(path).find(token) is None
    capsys.readouterr()
    assert main(["tokens", "revoke", "a"]) == 1
    assert capsys.readouterr().err.startswith("twinlens: there is no token a in ")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["A b", "--scope", "read"], "is not a name for a token"),
        (["a", "--scope", "everything"], "is not a scope"),
        (["a", "--scope", "read", "--rate", "0"], "--rate"),
        (["a", "--scope", "read", "--days", "0"], "--days"),
        (["a"], "--scope"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_makes_no_file(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokens.toml"
    assert main(["tokens", "new", *arguments, "--file", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert why in captured.err
    assert not path.exists()
