"""The index of a wire file: where its frames lie, read in blocks, and what references make of it."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from evidence import frames

SEGMENT = st.tuples(st.none() | st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.binary(max_size=40))
REQUESTS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.lists(SEGMENT, max_size=4)), max_size=6)


class Dribble(io.BytesIO):
    """A file that gives a few bytes at a time."""

    step = 7

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(self.step, size) if size and size > 0 else size)


def opened(data: bytes, step: int) -> Dribble:
    file = Dribble(frames.MAGIC + data)
    file.step = step
    file.seek(len(frames.MAGIC))
    return file


@settings(max_examples=60)
@given(REQUESTS, st.integers(0, 30), st.integers(1, 64))
def test_the_index_names_the_frames_that_decoding_gives_whatever_the_blocks_and_the_cut(requests, n_cut, step):
    data = b"".join(frames.encode(sequence, segments) for sequence, segments in requests)
    data = data[: max(0, len(data) - n_cut)]
    expected = list(frames.decode(frames.MAGIC + data, len(frames.MAGIC)))
    found = frames.index(opened(data, step))
    assert list(found.offsets) == [frame.offset for frame in expected]
    assert list(found.sequences) == [frame.sequence for frame in expected]
    assert found.end == len(frames.MAGIC) + sum(frame.n_bytes for frame in expected)
    assert found.n_torn == len(frames.MAGIC) + len(data) - found.end


def test_a_span_is_found_only_where_whole_frames_begin_and_end():
    data = frames.encode(5, [(1, 2, b"abc"), (None, 3, b"")]) + frames.encode(6, [(4, 5, b"x")])
    index = frames.index(opened(data, 1000))
    start, size = len(frames.MAGIC), frames.encoded_size([(1, 2, b"abc"), (None, 3, b"")])
    assert index.span(start, size) == range(2)
    assert index.span(start + size, len(data) - size) == range(2, 3)
    assert index.span(start + 1, size) is None and index.span(start, size - 1) is None
    assert index.span(0, size) is None
