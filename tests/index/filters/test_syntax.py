from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlens.index.filters.ast import (
    And,
    Anything,
    Boolean,
    Comparison,
    Filter,
    MetadataPath,
    Not,
    Null,
    Number,
    Operator,
    Or,
    OwnField,
    Text,
    Time,
    Value,
)
from twinlens.index.filters.errors import InvalidFilter
from twinlens.index.filters.parse import MAX_CHARACTERS, MAX_DEPTH, MAX_PARTS, parse


def has(path: str, value: Value, operator: Operator = Operator.EQUAL) -> Comparison:
    return Comparison(MetadataPath(tuple(path.split("."))), operator, value)


ONE, TWO, THREE = (has(name, Number(1)) for name in "abc")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a = 1", ONE),
        ("  (a\n=\t1 ) ", ONE),
        ("a = 1 AND b = 1", And((ONE, TWO))),
        ("a = 1 b = 1 AND c = 1", And((ONE, TWO, THREE))),
        ("a = 1 OR b = 1 OR c = 1", Or((ONE, TWO, THREE))),
        ("a = 1 AND b = 1 OR c = 1", And((ONE, Or((TWO, THREE))))),
        ("a = 1 OR b = 1 c = 1", And((Or((ONE, TWO)), THREE))),
        ("(a = 1 AND b = 1) OR c = 1", Or((And((ONE, TWO)), THREE))),
        ("NOT a = 1 OR b = 1", Or((Not(ONE), TWO))),
        ("-a = 1 -(b = 1)", And((Not(ONE), Not(TWO)))),
        ("NOT (NOT a = 1)", Not(Not(ONE))),
        ("ANDROID=1", has("ANDROID", Number(1))),
    ],
)
def test_or_binds_tighter_than_and_and_not_tightest(text: str, meaning: Filter) -> None:
    assert parse(text) == meaning


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("cat", Text("cat")),
        ('"red car"', Text("red car")),
        ("'say \"hi\"'", Text('say "hi"')),
        (r'"\"\\\'\n\t\r\u00e9\ud83d\ude00"', Text("\"\\'\n\t\ré😀")),
        ("cat*", Text("cat", open_end=True)),
        ('"*.jpg"', Text(".jpg", open_start=True)),
        ('"*a*b*"', Text("a*b", open_start=True, open_end=True)),
        (r'"\*a\*"', Text("*a*")),
        ('"*"', Text("", open_start=True, open_end=True)),
        ("*", Text("", open_start=True, open_end=True)),
        ('"2020"', Text("2020")),
        ("2020-05-01", Text("2020-05-01")),
        ("v1.2.3", Text("v1.2.3")),
        ("AND1", Text("AND1")),
        ("2020", Number(2020)),
        ("-5", Number(-5)),
        ("+1.5e-3", Number(0.0015)),
        (".5", Number(0.5)),
        (str(2**63 - 1), Number(2**63 - 1)),
        (str(2**64), Number(float(2**64))),
        ("true", Boolean(True)),
        ("false", Boolean(False)),
        ('"true"', Text("true")),
        ("null", Null()),
        ("1970-01-01T00:00:01Z", Time(1_000_000, "1970-01-01T00:00:01Z")),
        ('"1970-01-01t00:00:00.5-00:30"', Time(1_800_500_000, "1970-01-01t00:00:00.5-00:30")),
        ('"1970-02-30T00:00:00Z"', Text("1970-02-30T00:00:00Z")),
    ],
)
def test_values_have_the_type_that_they_look_like(written: str, value: Value) -> None:
    assert parse(f"a = {written}") == has("a", value)


def test_asterisks_are_wildcards_only_where_texts_are_equal() -> None:
    assert parse('a < "b*"') == has("a", Text("b*"), Operator.LESS)
    assert parse('a != "b*"') == has("a", Text("b", open_end=True), Operator.NOT_EQUAL)
    assert parse("a:*") == has("a", Anything(), Operator.HAS)
    assert parse('a:"b*"') == has("a", Text("b", open_end=True), Operator.HAS)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("id", OwnField("id")),
        ("'caption'", OwnField("caption")),
        ("metadata.id", MetadataPath(("id",))),
        ("metadata.metadata", MetadataPath(("metadata",))),
        ("camera.lens.mm", MetadataPath(("camera", "lens", "mm"))),
        ("größe", MetadataPath(("größe",))),
        ("file-name", MetadataPath(("file-name",))),
        ("2020", MetadataPath(("2020",))),
        ('"a.b"."AND". \'c "d"\'', MetadataPath(("a.b", "AND", 'c "d"'))),
        ('""', MetadataPath(("",))),
    ],
)
def test_other_names_than_the_items_own_are_paths_into_metadata(path: str, field: OwnField | MetadataPath) -> None:
    assert parse(f"{path} = x") == Comparison(field, Operator.EQUAL, Text("x"))


def test_texts_of_the_item_take_any_word_as_text() -> None:
    for word in ("2020", "true", "null", "2024-05-01T00:00:00Z"):
        assert parse(f"id = {word}") == Comparison(OwnField("id"), Operator.EQUAL, Text(word))


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, 'expected a condition such as tag = "cat", found the end'),
        (")", 1, 'expected a condition such as tag = "cat", found ")"'),
        ("a =  ", 4, "expected a value: a text in quotes, a number, true, false, null or a time"),
        ("a = AND b = 2", 5, 'found "AND"'),
        ("a == 1", 4, "(equality is a single =)"),
        ("a = 1)", 6, 'expected AND, OR or the end: there is no "(" for this'),
        ("(a = 1", 7, 'expected AND, OR or ")", found the end'),
        ("a", 2, 'expected = != < <= > >= or : after "a"'),
        ("dog", 4, 'after "dog" (in captions it is looked for by caption = "*dog*"), found the end'),
        (' "red car" ', 11, 'after "car" (in captions it is looked for by caption = "*red car*"), found the end'),
        ("has_image", 10, 'after "has_image" (values of several words need quotes), found the end'),
        ("a = red car", 12, 'after "car" (values of several words need quotes), found the end'),
        ('a = "x" "y\x1bz"', 14, 'after "y?z" ('),
        ("a = 1 and b = 1", 11, "AND is written in capitals"),
        ("a = 1 AND", 10, 'expected a condition such as tag = "cat"'),
        ("a. = 1", 4, "expected a name, or one in quotes"),
        ("a.b..c = 1", 5, "expected a name, or one in quotes"),
        ('a = "cat', 5, 'the quote " is never closed'),
        ("a = 'it\\'s", 5, "the quote ' is never closed"),
        (r'a = "x\q"', 7, "no escape"),
        (r'a = "x\u12"', 7, "no escape"),
        (r'a = "\ud800"', 5, "half of a surrogate pair"),
        (r'a = "\u0000"', 6, "NUL"),
        ("a = \0", 5, "NUL"),
        ("a = \ud800", 5, "surrogate"),
        ("a = 1e400", 5, "more than a number of 64 bits"),
        ("a < true", 5, "has no order"),
        ("a >= null", 6, "has no order"),
        ("x = 1 AND id.x = 1", 11, "write metadata.id"),
        ("metadata = 1", 1, "name a key"),
        ("has_image = yes", 13, "has_image is true or false"),
        ("has_image < true", 13, "has no order"),
        ("create_time > 2020", 15, "create_time is a time such as"),
        ("create_time > 2024-05-01T09:30:00", 15, "create_time is a time such as"),
        ("f(x) = 1", 2, 'found "("'),
        ("a IN (1, 2)", 3, 'after "a"'),
        ("a = (1 OR 2)", 5, 'found "("'),
        (".".join("k" * 25) + " = 1", 1, "at most 24 deep"),
        ("a" * MAX_CHARACTERS + "b = 1", MAX_CHARACTERS + 1, f"at most {MAX_CHARACTERS} are allowed"),
        ("(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "nested more than"),
        ("(a = 1 OR NOT " * 13 + "a = 1" + ")" * 13, 1, "AND, OR and NOT are nested 26 deep"),
        (" OR ".join(["a = 1"] * (MAX_PARTS // 2 + 1)), 1, f"at most {MAX_PARTS} are allowed"),
    ],
)
def test_errors_say_where_and_what_was_expected(text: str, column: int, problem: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(text)
    assert caught.value.column == column, caught.value
    assert str(caught.value).startswith(f"filter, column {column}: ")
    assert problem in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("path", ["id", "metadata.id"])
def test_asterisks_are_wildcards_only_where_texts_are_compared_for_being_the_same(path: str) -> None:
    for operator in ("<", "<=", ">", ">="):
        for written in ('"*a*"', "*a*"):
            node = parse(f"{path} {operator} {written}")
            assert isinstance(node, Comparison)
            assert node.value == Text("*a*")
    for operator in ("=", "!=", ":"):
        node = parse(f'{path} {operator} "*a*"')
        assert isinstance(node, Comparison)
        assert node.value == Text("a", open_start=True, open_end=True)


def test_the_longest_and_deepest_filters_are_read() -> None:
    assert parse("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH) == ONE
    deep = parse("NOT (" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH)
    assert isinstance(deep, Not)
    assert isinstance(parse(" OR ".join(["a = 1"] * (MAX_PARTS // 2))), Or)
    assert parse('a = ")((("') == has("a", Text(")((("))


_PIECES = [
    "a",
    "AND",
    "OR",
    "NOT",
    "-",
    "(",
    ")",
    "=",
    "!=",
    "<",
    ":",
    "*",
    '"',
    "'",
    "\\",
    ".",
    ",",
    "1",
    "true",
    " ",
    "\n",
    "é",
    "id",
    "\0",
]


def refusal(text: str) -> InvalidFilter | None:
    try:
        parse(text)
    except InvalidFilter as refused:
        return refused
    return None


@settings(max_examples=300)
@given(st.lists(st.sampled_from(_PIECES) | st.characters(), max_size=20).map("".join))
def test_whatever_is_written_is_read_or_refused_within_itself(text: str) -> None:
    refused = refusal(text)
    if refused is not None:
        assert 1 <= refused.column <= len(text) + 1
        assert str(refused).isprintable()
