"""Every line of a metrics body counts: a body is read whole or refused with the line and the value."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from infra.wire.exposition import Exposition, ExpositionError, parse

FIXTURES = Path(__file__).parent / "fixtures" / "exposition"
TEXT = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def read(body: str) -> Exposition:
    return parse(body + "\n", TEXT)


def only(body: str) -> tuple[str, dict[str, str], float]:
    (sample,) = read(body).samples
    return sample.name, dict(sample.labels), sample.value


def refused(body: str | bytes, content_type: str = TEXT) -> ExpositionError:
    with pytest.raises(ExpositionError) as caught:
        parse(body, content_type)
    return caught.value


def test_braces_commas_and_spaces_within_quotes_belong_to_the_label():
    labels = {"server": "primary", "extensions": "{plpgsql}", "database": "a,b"}
    assert only('m{server="primary",extensions="{plpgsql}",database="a,b"} 1') == ("m", labels, 1)


def test_a_closing_brace_within_quotes_does_not_lose_the_series():
    assert only('g{name="cluster}prod"} 1 1700000000') == ("g", {"name": "cluster}prod"}, 1)


def test_an_escaped_backslash_before_the_closing_quote_keeps_the_next_label():
    assert only('m{partition="F:\\\\",vm_name="X"} 2')[1] == {"partition": "F:\\", "vm_name": "X"}
    assert only('m{a="say \\"hi\\"",b="two\\nlines"} 2')[1] == {"a": 'say "hi"', "b": "two\nlines"}


def test_no_space_after_the_labels_keeps_all_digits_in_text_and_is_refused_in_openmetrics():
    assert only('m{a="1"}37') == ("m", {"a": "1"}, 37)
    assert refused('# TYPE m gauge\nm{a="1"}37\n# EOF\n', OPENMETRICS).line == 2


def test_a_counter_is_found_by_its_samples_name_and_typed_by_its_family():
    read_ = read("# TYPE a counter\na_total 1\n# TYPE b_total counter\nb_total 2\n# TYPE c counter\nc 3")
    assert [(s.name, s.value) for s in read_.samples] == [("a_total", 1), ("b_total", 2), ("c", 3)]
    assert [read_.type_of(name) for name in ("a_total", "b_total", "c")] == ["counter"] * 3


def test_a_gauge_does_not_type_the_total_beside_it():
    assert read("# TYPE a gauge\na 1\na_total 1").type_of("a_total") is None


def test_a_histogram_whose_name_ends_in_total_is_no_counter():
    body = '# TYPE it_total histogram\nit_total_bucket{le="+Inf"} 4\nit_total_sum 9\nit_total_count 4'
    assert {read(body).type_of(s.name) for s in read(body).samples} == {"histogram"}


def test_creation_stamps_stand_apart_and_engines_are_all_found():
    body = (
        '# TYPE n_total counter\nn_total{engine="0"} 22\nn_total{engine="1"} 20\n'
        '# TYPE n_created gauge\nn_created{engine="0"} 1756736798.73'
    )
    assert sum(s.value for s in read(body).find("n_total")) == 42
    assert [s.value for s in read(body).created] == [1756736798.73]
    assert read(body).find("n_total", {"engine": "1"})[0].value == 20


def test_a_series_that_is_only_called_created_is_a_series():
    assert [s.name for s in read("# TYPE jobs_created counter\njobs_created 3").samples] == ["jobs_created"]


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("1e+06", 1e6),
        ("1.4e-05", 1.4e-05),
        ("-3", -3),
        ("1.23457e+06", 1234570),
    ],
)
def test_every_way_to_print_a_number_is_read(printed, value):
    assert only(f"x {printed}")[2] == value
    assert only(f"x {printed} 1395066363000")[2] == value


def test_nan_is_read_as_nan():
    assert math.isnan(only('sglang:fwd_occupancy{tp_rank="0"} NaN')[2])


def test_a_comma_after_the_last_label_is_legal():
    assert only('m{a="o",} 3') == ("m", {"a": "o"}, 3)


def test_openmetrics_is_read_by_its_content_type_and_the_exemplar_ignored():
    body = (
        '# TYPE h histogram\nh_bucket{le="50.0"} 26 1.75e9 # {trace_id="44"} 30.0 1.75e9\n'
        'h_bucket{le="+Inf"} 26 1.75e9\nh_count 26 1.75e9\nh_sum 9 1.75e9\n# TYPE a counter\na_total 1\n# EOF\n'
    )
    read_ = parse(body, OPENMETRICS)
    assert read_.find("h_bucket", {"le": "50.0"})[0].value == 26
    assert read_.type_of("a_total") == "counter"
    assert read_.find("a_total")[0].line == 7
    assert refused(body, TEXT).line == 2  # in the text format that line is none


def test_openmetrics_without_its_end_mark_is_refused():
    assert "EOF" in refused("# TYPE a counter\na_total 1\n", OPENMETRICS).reason


def test_one_unescaped_quote_refuses_the_whole_body_and_names_the_line():
    error = refused('a 1\nt{name="MacBook 14" R/W"} 1\nb 2\n')
    assert (error.line, error.value) == (2, 't{name="MacBook 14" R/W"} 1')
    assert "line 2" in str(error)


def test_the_same_series_twice_is_an_error_in_any_order_of_labels():
    assert refused('g{tp_rank="0"} 1\ng{tp_rank="0"} 2\n').line == 2
    assert refused('g{a="1",b="2"} 1\ng{b="2",a="1"} 1\n').line == 2


def test_a_body_cut_in_the_middle_of_a_number_is_refused():
    whole = 'generation_tokens_total{engine="0"} 12345.0\n'
    for end in range(len(whole) - 1, 0, -1):
        assert refused(whole[:end]).reason


def test_every_cut_of_a_real_body_but_those_at_a_line_end_is_refused():
    body = (FIXTURES / "llamacpp_b11434_2_spec_one_request.prom").read_bytes()
    for end in range(len(body)):
        if body[:end].endswith(b"\n"):
            assert len(parse(body[:end], TEXT).samples) < 18
        else:
            assert refused(body[:end])


@pytest.mark.parametrize(
    "line",
    [
        "nan", "Inf", "m", "m one", "m 1 2 3", "m 1_000", "m 0x10", "m 1.5 1.5",
        'm{a="1" 5', 'm{a=1} 5', 'm{a="1",,} 5',
        'm{,a="1"} 5', 'm{a="1"b="2"} 5', 'm{a="1",a="2"} 5', '{a="1"} 5', "9m 5", "m 5\r", "<html>", '{"error": 1}',
        "# TYPE m", "# TYPE m thing", 'm{a="1"} 5 # {trace_id="44"} 30.0', "m ١",
    ],
)  # fmt: skip
def test_a_line_that_is_no_sample_refuses_the_body(line):
    error = refused(f"ok 1\n{line}\nlater 2\n")
    assert error.line == 2
    assert error.value == line.strip(" ")


def test_a_second_type_for_one_name_is_refused():
    assert refused("# TYPE m counter\nm 1\n# TYPE m gauge\n").line == 3


@pytest.mark.parametrize("body", ["", "\n\n"])
def test_an_empty_body_is_no_server_without_series(body):
    assert refused(body).reason == "nothing in it"


def test_bytes_that_are_not_utf8_are_refused_by_line():
    assert refused(b'a 1\nm{a="\xff"} 1\n').line == 2


def test_a_page_is_no_metrics_body_whatever_is_in_it():
    assert "Content-Type" in refused("a 1\n", "text/html").reason


def test_a_real_body_is_read_whole():
    read_ = parse((FIXTURES / "llamacpp_b11434_2_spec_one_request.prom").read_bytes(), TEXT)
    assert len(read_.samples) == 18
    positions = [s.value for s in read_.find("llamacpp:spec_decode_num_accepted_tokens_per_pos_total")]
    assert positions == [38, 32, 26]


names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
label_names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)  # a leading "__" is reserved
labels = st.dictionaries(
    label_names, st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=6), max_size=3
)
samples = st.tuples(names, labels, st.floats(allow_nan=False) | st.integers(-(10**15), 10**15))


def exposed(name: str, labels: dict[str, str], value: float) -> str:
    escape = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    inner = ",".join(f'{k}="{v.translate(escape)}"' for k, v in labels.items())
    return f"{name}{{{inner}}} {value!r}\n"


@settings(max_examples=60, deadline=None)
@given(st.lists(samples, min_size=1, max_size=5, unique_by=lambda s: (s[0], tuple(sorted(s[1].items())))))
def test_what_is_exposed_is_what_is_read_and_what_the_library_reads(given_samples):
    body = "".join(exposed(*sample) for sample in given_samples)
    ours = [(s.name, dict(s.labels), s.value) for s in parse(body, TEXT).samples]
    assert ours == [(n, labels, float(v)) for n, labels, v in given_samples]
    theirs = [(s.name, dict(s.labels), s.value) for f in text_string_to_metric_families(body) for s in f.samples]
    assert ours == theirs


def test_a_number_beyond_every_float_is_a_bad_line_and_no_crash():
    with pytest.raises(ExpositionError) as caught:
        parse("a 1" + "0" * 400 + "\n", None)
    assert caught.value.line == 1
