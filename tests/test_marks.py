"""Packed chunk marks: the same sequence as tuples, as strict as tuples, and the numbers drawn from their columns."""

import json
import pickle
import sys
from array import array
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from analysis.columns import arrivals_s, column, packed, rising, run_of
from analysis.measures import chunk_gaps_s
from analysis.request_checks import _marks_problem
from evidence.errors import EvidenceError, Problem
from evidence.lines import decode_one, encode
from evidence.marks import ChunkMark, Marks, cut
from evidence.records import Record, Request
from tests.run_factory import request

few = settings(max_examples=40, deadline=None)
COUNTS = st.integers(0, 2**70) | st.integers(0, 400)
MARKS = st.lists(st.tuples(st.floats(0, 1e6), COUNTS, st.none() | COUNTS, COUNTS), max_size=12)
# What a line might hold where its marks stand, right or wrong.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**66) | st.floats(allow_nan=True) | st.sampled_from(["1", "", "x"]),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)
ALMOST = st.lists(st.tuples(JSON, JSON, JSON, JSON).map(list) | JSON, max_size=4) | MARKS.map(
    lambda m: [list(x) for x in m]
)


class Plain(Record):
    """The same field as tuples."""

    chunks: tuple[ChunkMark, ...]


@few
@given(MARKS)
def test_packed_marks_are_the_sequence_of_tuples_they_were_made_of(marks):
    found, expected = Marks(marks), tuple(marks)
    assert tuple(found) == expected and found == expected and expected == found
    assert len(found) == len(expected) and hash(found) == hash(expected)
    assert [found[place] for place in range(-len(marks), len(marks))] == [*expected, *expected]
    assert found[1:3] == expected[1:3]
    assert Marks(found) == found and pickle.loads(pickle.dumps(found)) == found
    assert found != Marks([*marks, (1.0, 1, None, 1)])


def test_marks_differ_where_one_number_does():
    one = [(0.5, 1, 2, 3), (0.6, 2, None, 3)]
    for place in range(4):
        other = [list(mark) for mark in one]
        other[1][place] = 7
        assert Marks(one) != Marks([tuple(mark) for mark in other])


@few
@given(ALMOST)
def test_a_line_with_packed_marks_is_refused_exactly_where_plain_tuples_are_refused(value):
    line = request().model_dump_json().encode()
    own = json.dumps(json.loads(line)["chunks"], separators=(",", ":")).encode()
    assert line.count(b'"chunks":' + own) == 1
    text = json.dumps(value).encode()
    read = decode_one(line.replace(b'"chunks":' + own, b'"chunks":' + text), Request, "requests.jsonl", 3)
    try:
        expected = Plain.model_validate_json(b'{"chunks":' + text + b"}")
    except ValidationError as error:
        assert isinstance(read, Problem) and (read.code, read.line) == ("schema_violation", 3)
        first = error.errors()[0]
        assert read.detail.startswith("Request: " + ".".join(map(str, first["loc"])) + f": {first['msg']}")
    else:
        assert not isinstance(read, Problem) and read.chunks == expected.chunks


@few
@given(MARKS)
def test_what_is_written_reads_back_and_a_record_made_from_a_read_one_is_equal(marks):
    record = request(chunks=[(0.1, 0, 1, 5)]).model_copy(update={"chunks": Marks(marks)})
    line = encode(record, Path("requests.jsonl")).line
    read = decode_one(line, Request, "requests.jsonl")
    assert isinstance(read, Request) and isinstance(read.chunks, Marks)
    assert read == record and Request(**dict(read)) == read and encode(read, Path("x")).line == line
    assert TypeAdapter(tuple[ChunkMark, ...]).validate_python(tuple(read.chunks)) == tuple(marks)


@pytest.mark.parametrize(
    "chunks", [[(0.1, 0, 1, -1)], [(0.1, 0, 1)], [(float("nan"), 0, 1, 1)], [("0.1", 0, 1, 1)], "ab"]
)
def test_a_constructor_refuses_what_are_no_marks(chunks):
    with pytest.raises(ValidationError):
        Request(**{**dict(request()), "chunks": chunks})


def test_columns_take_a_tenth_of_the_memory_of_tuples():
    marks = Marks((0.05 + 0.02 * n, n, n + 1, 5) for n in range(200))
    columns = (marks.after_s, marks.segments, marks.tokens, marks.characters)
    assert all(isinstance(column, bytes | array) for column in columns)
    as_tuples = sum(sys.getsizeof(mark) + sys.getsizeof(mark[0]) for mark in marks)
    assert sum(sys.getsizeof(column) for column in columns) < as_tuples / 7


def test_a_column_that_two_answers_share_can_be_written_into_by_neither():
    one, two = (Marks((at + n, n, n + 1, 5) for n in range(9)) for at in (0.1, 0.2))
    for shared, other in ((one.segments, two.segments), (one.tokens, two.tokens), (one.characters, two.characters)):
        assert shared is other
        assert memoryview(shared).readonly and not column(shared).flags.writeable


def test_counts_of_tokens_stay_unknown_where_they_are():
    assert Marks([(0.1, 0, None, 1), (0.2, 1, None, 1)]).tokens is None
    assert Marks([(0.1, 0, None, 1), (0.2, 1, 3, 1)]).tokens == (None, 3)
    assert Marks([(0.1, 0, 0, 1)])[0][2] == 0


@few
@given(MARKS)
def test_gaps_arrivals_and_segments_are_those_of_a_plain_loop(marks):
    arrivals, last = [], None
    for at, segment, _, _ in marks:
        if segment != last:
            arrivals.append(at)
            last = segment
    small = [(at, min(segment, 2**62), tokens, chars) for at, segment, tokens, chars in marks]
    if len({mark[1] for mark in marks}) == len({mark[1] for mark in small}):
        assert arrivals_s(Marks(marks)).tolist() == arrivals
        one = request().model_copy(update={"chunks": Marks(marks)})
        assert chunk_gaps_s(one) == [b - a for a, b in pairwise(arrivals)]
    for first in range(len(marks)):
        same = [n for n, mark in enumerate(marks) if mark[1] == marks[first][1]]
        found = list(run_of(packed(marks), first))
        assert found == same or found == same[same.index(first) :] == list(range(first, first + len(same)))


@few
@given(MARKS)
def test_marks_out_of_order_are_named_and_no_others(marks):
    one = request().model_copy(update={"chunks": Marks(marks)})
    falls = any(b[0] < a[0] or b[1] < a[1] for a, b in pairwise(marks)) or any(
        a[2] is not None and b[2] is not None and b[2] < a[2] for a, b in pairwise(marks)
    )
    assert (_marks_problem(one) is not None) == falls
    assert rising(Marks(marks).after_s) == all(b[0] >= a[0] for a, b in pairwise(marks))


def _line(chunks: str, **others) -> bytes:
    fields = json.loads(encode(request(), Path("requests.jsonl")).line) | {"chunks": "@"} | others
    return json.dumps(fields, separators=(",", ":")).replace('"@"', chunks).encode()


def _as_schema_alone_reads(line: bytes) -> Request | Problem:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evidence.lines.cut", lambda _: None)
        return decode_one(line, Request, "requests.jsonl", 1)


@few
@given(
    MARKS | ALMOST, st.integers(0, 400), st.sampled_from(["", "5", "-", ".", "e9", " ", "[", "]", ",", "],[", "null"])
)
def test_marks_read_apart_from_their_line_are_taken_and_refused_as_the_schema_alone_does(value, place, odd):
    text = json.dumps(value, separators=(",", ":"))
    line = _line(text[: place % (len(text) + 1)] + odd + text[place % (len(text) + 1) :])
    assert decode_one(line, Request, "requests.jsonl", 1) == _as_schema_alone_reads(line)


def test_what_looks_like_marks_elsewhere_in_a_line_stays_where_it_is():
    elsewhere = {"chunks": [[0.1, 1, 1, 6]], "text": '"chunks":[[0.1,1,1,6]]'}
    for own in ("[]", "[[0.5,2,2,3]]", '"@"'):
        line = _line(own, server_fields=elsewhere, usage=elsewhere)
        assert decode_one(line, Request, "requests.jsonl", 1) == _as_schema_alone_reads(line)
    read = decode_one(_line("[[0.5,2,2,3]]", server_fields=elsewhere), Request, "requests.jsonl", 1)
    assert isinstance(read, Request) and read.server_fields == elsewhere and read.chunks == ((0.5, 2, 2, 3),)


def test_marks_as_this_program_writes_them_are_read_apart():
    for chunks in (((0.5, 1, 1, 3), (0.75, 2, 300, 4)), ((0.5, 1, None, 3), (0.75, 70_000, None, 0))):
        apart = cut(encode(request(chunks=chunks), Path("requests.jsonl")).line)
        assert apart is not None and apart.marks == chunks and len(apart.line) > 100


def test_packed_marks_are_taken_as_they_are_and_held_against_the_schema_once_they_are_written():
    def made(marks: Marks) -> Request:
        return Request(**(vars(request()) | {"chunks": marks}))

    already = Marks([(0.5, 1, 1, 3)])
    assert made(already).chunks is already
    for wrong in ((0.5, -1, 1, 3), (0.5, 1, 1, -3), (float("nan"), 1, 1, 3)):
        with pytest.raises(EvidenceError, match="does not meet its schema"):
            encode(made(Marks([wrong])), Path("requests.jsonl"))
