from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.training.data.errors import DataError
from twinlens.training.data.shard_names import expand_braces, public_name, shard_names, shard_titles


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.tar", "a.tar"),
        ("{0..3}.tar", "0.tar 1.tar 2.tar 3.tar"),
        ("x-{08..10}-{a,b}.tar", "x-08-a.tar x-08-b.tar x-09-a.tar x-09-b.tar x-10-a.tar x-10-b.tar"),
        ("{000..001}/{1..2}.tar", "000/1.tar 000/2.tar 001/1.tar 001/2.tar"),
        ("{b,a}", "b a"),
        ("{3..1}", "3 2 1"),
        ("s3://b/{00..01}.tar", "s3://b/00.tar s3://b/01.tar"),
        ("{1,}x", "1x x"),
    ],
)
def test_lists_in_braces_stand_for_their_values_as_in_a_shell(pattern: str, expected: str) -> None:
    assert list(expand_braces(pattern)) == expected.split()


def test_ranges_and_values_mix() -> None:
    assert list(expand_braces("{00..01,x}.tar")) == ["00.tar", "01.tar", "x.tar"]
    assert list(expand_braces("{alone}.tar")) == ["{alone}.tar"]


def test_files_folders_and_patterns_name_shards_in_order(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    both = [str(tmp_path / "a.tar"), str(tmp_path / "b.tar")]
    assert shard_names(str(tmp_path)) == both
    assert shard_names(str(tmp_path / "*.tar")) == both
    assert shard_names(str(tmp_path / "{b,a}.tar")) == both[::-1]
    assert shard_names(both[0]) == both[:1]


def test_a_shard_that_is_named_and_not_there_is_no_smaller_data_set(tmp_path: Path) -> None:
    for name in ("0.tar", "2.tar"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"2 of the shards that .*\{0\.\.3\}\.tar names are not there; .* .*1\.tar$"):
        shard_names(str(tmp_path / "{0..3}.tar"))
    assert len(shard_names(str(tmp_path / "{0,x}*.tar"))) == 1


def test_addresses_are_kept_as_they_are() -> None:
    assert shard_names("https://x/{0..1}.tar?q=*") == ["https://x/0.tar?q=*", "https://x/1.tar?q=*"]


def test_keys_in_addresses_may_be_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNATURE", "a{b,c}d")
    assert shard_names("https://x/{0..1}.tar?s=${SIGNATURE}") == [f"https://x/{k}.tar?s=a{{b,c}}d" for k in range(2)]
    monkeypatch.delenv("SIGNATURE")
    with pytest.raises(DataError, match="names the variable SIGNATURE, which is not set"):
        shard_names("https://x/0.tar?s=${SIGNATURE}")


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("https://user:word@x:80/a/0.tar?X-Signature=1#2", "https://x:80/a/0.tar"),
        ("zip://0.tar::https://me@x/a.zip?s=1", "zip://0.tar::https://x/a.zip"),
        ("s3://b/a@2/0.tar", "s3://b/a@2/0.tar"),
        ("odd?name/0.tar", "odd?name/0.tar"),
    ],
)
def test_what_may_be_a_key_is_left_out_of_public_names(name: str, public: str) -> None:
    assert public_name(name) == public


def test_titles_of_shards_differ_and_hold_no_keys() -> None:
    assert shard_titles(["a/0.tar", "https://x/1.tar?s=k"]) == ["0.tar", "1.tar"]
    assert shard_titles(["a/0.tar", "b/0.tar", "1.tar"]) == ["a/0.tar", "b/0.tar", "1.tar"]
    alike = ["https://x/get?id=0&s=k", "https://x/get?id=1&s=k"]
    assert shard_titles(alike) == ["https://x/get[0]", "https://x/get[1]"]


def test_what_names_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no shards at"):
        shard_names(str(tmp_path / "x*.tar"))
    with pytest.raises(DataError, match="no shards at"):
        shard_names(str(tmp_path))
