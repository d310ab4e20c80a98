"""Tokens and the file of their hashes."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.server.access.secured import token_in
from twinlens.server.access.token import digest, is_name, name_in, new_token
from twinlens.server.access.token_file import TokenFileError, parse_tokens, read_tokens, remove_token
from twinlens.server.core.caller import Caller, Grant, Scope

GOOD = f'[[tokens]]\nname = "a"\nhash = "sha256:{"0" * 64}"\nscopes = ["read"]\n'


def test_a_token_says_its_name_and_no_two_are_the_same() -> None:
    drawn = {new_token("search-page") for _ in range(100)}
    assert len(drawn) == 100
    assert {name_in(token) for token in drawn} == {"search-page"}
    assert len({digest(token) for token in drawn}) == 100


@pytest.mark.parametrize("text", ["", "twl_", "twl_a_", "twl_a_" + "0" * 63, "twl_A_" + "0" * 64, "xtwl_a_" + "0" * 64])
def test_what_is_no_token_has_no_name(text: str) -> None:
    assert name_in(text) is None
    assert not is_name(text)


def test_a_file_keeps_hashes_scopes_rates_and_ends_and_never_a_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    until = datetime(2099, 1, 31, 12, 30, tzinfo=UTC)
    first = token_in(path, "search", "read")
    second = token_in(path, "ingest", "read", "write:photos-*", rate=2.5, expires=until)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_text()
    assert first not in content
    assert first.rpartition("_")[2] not in content
    search, ingest = read_tokens(path)
    assert search.digest == digest(first)
    assert search.caller == Caller("search", (Grant(Scope.READ),))
    assert ingest.digest == digest(second)
    assert ingest.caller.grants == (Grant(Scope.READ), Grant(Scope.WRITE, "photos-*"))
    assert (ingest.rate_per_s, ingest.expires) == (2.5, until)


def test_adding_and_removing_leave_the_rest_of_a_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f"# ours\n\n{GOOD}# about a\n")
    os.chmod(path, 0o640)  # noqa: PTH101
    token_in(path, "b", "admin")
    token_in(path, "c", "write")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    remove_token(path, "b")
    assert [token.caller.name for token in read_tokens(path)] == ["a", "c"]
    assert path.read_text().startswith(f"# ours\n\n{GOOD}# about a\n")
    with pytest.raises(TokenFileError, match="no token b"):
        remove_token(path, "b")
    with pytest.raises(TokenFileError, match=r"a token c in .* already"):
        token_in(path, "c", "read")


def test_a_file_that_is_a_link_is_changed_where_it_lies(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text(GOOD)
    link.symlink_to(real)
    token_in(link, "b", "read")
    assert link.is_symlink()
    assert len(read_tokens(real)) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_stays_its_owners_whoever_changes_it(tmp_path: Path) -> None:
    """Otherwise a server that runs as that user could not read what was revoked, and would go on with what it had."""
    path = tmp_path / "tokens.toml"
    path.write_text(GOOD)
    path.chmod(0o600)
    os.chown(path, 10001, 10002)
    token_in(path, "b", "read")
    remove_token(path, "a")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (10001, 10002, 0o600)


def test_what_cannot_be_taken_apart_is_left_to_an_editor(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    content = f'tokens = [{{name = "a", hash = "sha256:{"0" * 64}", scopes = ["read"]}}]\n'
    path.write_text(content)
    with pytest.raises(TokenFileError, match="with an editor"):
        remove_token(path, "a")
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[[tokens]", "not TOML"),
        ("[[token]]\nname = 'a'", "something else than"),
        ("tokens = 3", "something else than"),
        (GOOD.replace('"a"', '"A b"'), "its name must be"),
        (GOOD.replace('name = "a"\n', ""), "its name must be"),
        (GOOD.replace("sha256:", "md5:"), "hash of a must be"),
        (GOOD.replace('["read"]', '"read"'), "must be a list"),
        (GOOD.replace('["read"]', "[]"), "must be a list"),
        (GOOD.replace('"read"', '"everything"'), "'everything' is not a scope"),
        (GOOD.replace('"read"', '"read:"'), "'read:' is not a scope"),
        (GOOD.replace('"read"', '"read:Photos"'), "'read:Photos' is not a scope"),
        (GOOD + "rate = 0\n", "rate of a"),
        (GOOD + "rate = nan\n", "rate of a"),
        (GOOD + "rate = true\n", "rate of a"),
        (GOOD + f"rate = {'1' * 5000}\n", "not TOML"),
        (GOOD + 'expires = "soon"\n', "expires must be written as"),
        (GOOD + "scope = 1\n", "scope is not known"),
        (GOOD + GOOD, "two tokens named a"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_says_why_on_one_line(content: str, why: str) -> None:
    with pytest.raises(TokenFileError, match=why) as caught:
        parse_tokens(content, Path("tokens.toml"))
    assert "\n" not in str(caught.value)
    assert "tokens.toml" in str(caught.value)


def test_a_file_that_is_missing_or_no_text_says_so(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match=r"cannot be read from .*: No such file"):
        read_tokens(tmp_path / "missing.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TokenFileError, match="is not text"):
        read_tokens(tmp_path / "binary")
