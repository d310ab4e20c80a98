"""The database and Python must find the same items: whatever is stored, whatever is asked."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.filtered_items import agreed, database, expected, found, quoted, stored
from twinlens.index.filters.parse import MAX_DEPTH, MAX_PARTS, parse
from twinlens.index.filters.sql import condition

# Few letters, so that texts, keys and paths meet; among them what SQL, JSON paths and patterns give a meaning to.
_LETTERS = "ab.*\"'\\%_$[]{}();?-é😀\n\x01"
_texts = st.text(st.sampled_from(_LETTERS), max_size=4) | st.sampled_from(["a", "b", "ab", "1", "null", "2020-01-01"])
_anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_numbers = st.sampled_from([0, 1, -1, 2, 1.5, 0.1, 1e300, 2**63, 2**53 + 1, float(2**53), -(2**70)]) | st.floats(
    allow_nan=False, allow_infinity=False
)
_moments = st.sampled_from(
    ["2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00", "2019-12-31T23:59:59.999999Z", "2020-01-01"]
)
_scalars = _texts | _numbers | st.booleans() | st.none() | _moments
_metadata = st.dictionaries(
    _texts,
    st.recursive(
        _scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def _items(given_metadata: list[dict[str, Any]]) -> list[Any]:
    return [
        stored(
            f"{i}", metadata, caption="ab"[: i % 3], has_image=i % 2 == 0, created_s=1.6e9 + i / 3, updated_s=1e9 * i
        )
        for i, metadata in enumerate(given_metadata)
    ]


def _value(scalar: Any) -> str:
    return quoted(scalar) if isinstance(scalar, str) else json.dumps(scalar)


@st.composite
def _comparisons(draw: st.DrawFn) -> str:
    path = ".".join(map(quoted, draw(st.lists(_texts, min_size=1, max_size=3))))
    operator = draw(st.sampled_from(["=", "!=", ":", "<", "<=", ">", ">="]))
    scalar = draw(
        _scalars if operator in {"=", "!=", ":"} else _texts | _numbers.filter(lambda x: abs(x) < 1e308) | _moments
    )
    value = _value(scalar)
    if isinstance(scalar, str) and draw(st.booleans()):
        value = f'"{"*" * draw(st.integers(0, 1))}{value[1:-1]}{"*" * draw(st.integers(0, 1))}"'
    return f"metadata.{path} {operator} {'*' if operator == ':' and draw(st.booleans()) else value}"


_OWN = [
    "id = 1",
    "id > 0",
    "caption:*",
    'caption = "a*"',
    "caption != a",
    "has_image = true",
    "has_image != true",
    "create_time > 2020-09-13T12:26:40Z",
    'create_time = "2020-09-13T12:26:40.333333Z"',
    'create_time != "2020-09-13T12:26:40.333333Z"',
    "update_time <= 2001-09-09T01:46:40Z",
    "update_time:*",
]
_filters = st.recursive(
    _comparisons() | st.sampled_from(_OWN),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
        st.builds("({} {})".format, inner, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=100)
@given(st.lists(_metadata, min_size=1, max_size=5), st.lists(_filters, min_size=1, max_size=5))
def test_database_and_python_agree(metadata: list[dict[str, Any]], filters: list[str]) -> None:
    items = _items(metadata)
    connection = database(items)
    for text in filters:
        assert found(connection, text) == expected(items, text), text
    connection.close()


@settings(max_examples=100)
@given(st.lists(_anything, min_size=1, max_size=3, unique=True), _anything, _anything)
def test_any_text_is_data_as_value_and_as_name(path: list[str], value: str, other: str) -> None:
    metadata: Any = value
    for key in reversed(path):
        metadata = {key: metadata}
    items = [stored("it", metadata), stored("other", {"x": 1})]
    where = "metadata." + ".".join(map(quoted, path))
    connection = database(items)
    assert found(connection, f"{where} = {quoted(value)}") == ["it"]
    assert found(connection, f"{where}:{quoted(value)}") == ["it"]
    assert found(connection, f"{where} = {quoted(other)}") == (["it"] if other == value else [])
    assert found(connection, f'{where} = "*{quoted(value)[1:-1]}*"') == ["it"]
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (2,)
    connection.close()


@given(_anything, _anything)
def test_what_a_caller_wrote_never_becomes_part_of_a_statement(name: str, value: str) -> None:
    texts = {
        condition(parse(f"metadata.{quoted('x' + n)} != {quoted('x' + v)}")).text
        for n, v in [(name, value), ("n", "v")]
    }
    plain = not any(character < " " or character in '"\\' for character in name)
    assert len(texts) == (1 if plain else 2)
    assert all(text.isascii() and ";" not in text and "--" not in text for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "id = \"x' OR '1'='1\"",
        'id = "x\'); DROP TABLE items; --"',
        'metadata."x\') OR 1=1 --" = 1',
        'metadata."x\\"\') OR 1=1 --" = 1',
        "tags:\"' OR ''='\"",
        'caption = "%"',
        'caption = "_"',
        'a = "$.b"',
    ],
)
def test_statements_in_disguise_find_nothing_and_change_nothing(text: str) -> None:
    items = [stored("a", {"a": {"b": 1}, "tags": []}, caption="c")]
    connection = database(items)
    assert found(connection, text) == []
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (1,)
    connection.close()


PHOTOS = [
    stored("cat", {"tag": "cat", "year": 2020, "good": True, "tags": ["x", "pet"], "note": None}, has_image=True),
    stored("dog", {"tag": "dog", "year": 2021.5, "good": 1, "tags": "pet", "objects": [{"label": "dog", "n": 2}]}),
    stored("none", {"year": "2020", "tags": {"pet": 1}}),
]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("tag = cat", ["cat"]),
        ("tag != cat", ["dog"]),
        ("NOT tag = cat", ["dog", "none"]),
        ("NOT tag != cat", ["cat", "none"]),
        ("year > 2019", ["cat", "dog"]),
        ('year = "2020"', ["none"]),
        ("year != 2020", ["dog", "none"]),
        ("good = true", ["cat"]),
        ("good = 1", ["dog"]),
        ("note = null", ["cat"]),
        ("note:*", ["cat"]),
        ("-note:*", ["dog", "none"]),
        ("tags:pet", ["cat", "dog", "none"]),
        ("tags:*", ["cat", "dog", "none"]),
        ("tags = pet", ["dog"]),
        ("tags != pet", []),
        ("objects.label:dog", ["dog"]),
        ("objects.label:d*", ["dog"]),
        ("objects.label = dog", []),
        ("objects.n:2", ["dog"]),
        ("metadata:note", ["cat"]),
        ('tag < "d"', ["cat"]),
        ("tag >= cat AND tag < d", ["cat"]),
        ("has_image = true", ["cat"]),
        ("NOT has_image = true", ["dog", "none"]),
        ("id = cat OR id = none", ["cat", "none"]),
    ],
)
def test_what_filters_mean(text: str, ids: list[str]) -> None:
    assert agreed(PHOTOS, text) == ids


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        ("*é", ["aé"]),
        ("é*", ["éa", "é😀a"]),
        ("*é*", ["aé", "aéa", "éa", "é😀a"]),
        ("*😀a", ["é😀a"]),
        ("*A*", []),
        ("*%*", ["%_"]),
        ("*_", ["%_"]),
        ("*", ["%_", "aé", "aéa", "éa", "é😀a"]),
    ],
)
def test_wildcards_stand_for_any_characters_and_for_nothing_else(pattern: str, ids: list[str]) -> None:
    texts = ["%_", "aé", "aéa", "éa", "é😀a"]
    items = [stored(text, {"t": text, "list": [text]}, caption=text) for text in texts]
    for field in ("metadata.t =", "metadata.t:", "metadata.list:", "id =", "caption ="):
        assert agreed(items, f'{field} "{pattern}"') == ids, field


@pytest.mark.parametrize("last", ["a", "\x7f", "\u07ff", "\ud7ff", "\ue001", "\uffff", "\U0010ffff"])
def test_texts_begin_with_the_characters_at_which_encodings_change(last: str) -> None:
    texts = [f"x{last}", f"x{last}\U0010ffff", f"x{last}a", f"y{last}", "x", f"x{chr(ord(last) - 1)}", last]
    items = [stored(f"{i}", {"t": text}) for i, text in enumerate(texts)]
    assert agreed(items, f't = {quoted(f"x{last}")[:-1]}*"') == ["0", "1", "2"]
    assert agreed(items, f't = {quoted(last)[:-1]}*"') == ["6"]


def test_times_in_metadata_are_compared_as_times() -> None:
    items = [
        stored("paris", {"taken": "2024-05-01T12:00:00+02:00"}),
        stored("london", {"taken": "2024-05-01T10:00:00Z"}),
        stored("day", {"taken": "2024-05-01"}),
        stored("text", {"taken": "yesterday"}),
    ]
    assert agreed(items, "taken = 2024-05-01T10:00:00Z") == ["london", "paris"]
    assert agreed(items, 'taken < "2024-05-01T10:00:00Z"') == ["day"]
    assert agreed(items, "taken != 2024-05-01T10:00:00Z") == ["day", "text"]


@given(st.integers(-(10**15), 250 * 10**15), st.integers(-3, 3), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
def test_the_items_own_times_are_compared_as_they_are_shown(moment: int, off: int, operator: str) -> None:
    seconds = (moment + off / 2) / 1e6
    item = stored("a", created_s=seconds)
    asked = parse(f"create_time {operator} 2024-05-01")
    connection = database([item])
    shown = round(seconds * 1e6)
    where = condition(type(asked)(asked.field, asked.operator, type(asked.value)(moment, "")))  # type: ignore[union-attr,call-arg,arg-type]
    truth = eval(f"{shown} {operator.replace('=', '==') if operator == '=' else operator} {moment}")  # noqa: S307
    rows = connection.execute(f"SELECT id FROM items WHERE {where.text}", where.parameters).fetchall()  # noqa: S608
    assert bool(rows) is truth
    connection.close()


def test_the_largest_filters_are_answered() -> None:
    items = [stored("a", {"k": {"k": 1}})]
    assert agreed(items, " OR ".join(["id = b"] * (MAX_PARTS // 2 - 1) + ["id = a"])) == ["a"]
    deep = ".".join(["k"] * 24)
    assert agreed(items, " OR ".join([f"NOT {deep}:1"] * (MAX_PARTS // 25))) == ["a"]
    assert agreed(items, "NOT (" * MAX_DEPTH + "k:k" + ")" * MAX_DEPTH) == ["a"]


def _full(operands: int, depth: int) -> str:
    """AND and OR by turns, as deep as can be and everywhere at once."""
    if not depth:
        return 'k.k."\\"":*'  # what takes most symbols to be read
    word = " AND " if depth % 2 else " OR "
    return "(" + word.join(_full(operands, depth - 1) for _ in range(operands)) + ")"


@pytest.mark.parametrize("last", [True, False])
def test_the_deepest_filters_are_answered_wherever_they_are_deep(last: bool) -> None:
    items = [stored("a", {"k": {"k": 1}})]
    for text in (_full(2, 7), _full(5, 3), _full(11, 2)):  # what MAX_PARTS leaves room for
        for around in range(MAX_DEPTH - 7):
            word, other = ("AND", "OR") if around % 2 else ("OR", "AND")
            side = f"(k:x {word} k:y)"
            text = f"({side} {other} {text})" if last else f"({text} {other} {side})"  # noqa: PLW2901 - it grows
        assert agreed(items, text) == []


def test_an_index_is_used_for_its_path_and_finds_the_same() -> None:
    items = [stored(f"{i}", {"year": i % 50, "it's": {"x": f"{i}"}}) for i in range(500)]
    connection = database(items)
    connection.execute("""CREATE INDEX one ON items (json_extract(metadata, '$."year"'))""")
    connection.execute("""CREATE INDEX two ON items (json_extract(metadata, '$."it''s"."x"'))""")
    indexed = [("year",), ("it's", "x")]
    for text, index in [
        ("year = 7", "one"),
        ("year > 47 AND year < 49", "one"),
        ('"it\'s".x = "7"', "two"),
        ('"it\'s".x = "49*"', "two"),
    ]:
        where = condition(parse(text), indexed)
        rows = connection.execute(f"EXPLAIN QUERY PLAN SELECT id FROM items WHERE {where.text}", where.parameters)  # noqa: S608
        plan = " ".join(row[3] for row in rows)
        assert f"USING INDEX {index}" in plan, text
        assert ("*" not in text) or "<expr>>? AND <expr><?" in plan  # no further than needed
        assert found(connection, text, indexed) == expected(items, text)
        assert found(connection, text) == expected(items, text)
    connection.close()


def test_statements_fit_the_database_that_python_brings() -> None:
    assert sqlite3.sqlite_version_info >= (3, 38)  # JSON is built in, and IS NOT TRUE is known
