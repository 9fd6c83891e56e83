"""Model files read without their weights: whole, half there, cut, and of the wrong kind."""

import json
import struct
from pathlib import Path

import model_folders as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.preflight.checkpoint import CheckpointError, read_checkpoint
from infra.preflight.gguf_header import read_gguf
from infra.preflight.token_maps import TokenizerError, differences, read_tokenizer
from infra.preflight.weight_headers import HeaderError, read_safetensors, read_values

SHAPES = {"model.embed_tokens.weight": ("BF16", (64, 8)), "lm_head.weight": ("BF16", (64, 8))}


def test_a_whole_folder_has_no_fault_and_its_bytes_are_those_of_the_headers(tmp_path: Path) -> None:
    model = read_checkpoint(make.folder(tmp_path / "m", shapes=SHAPES))
    assert (model.faults, model.notes, model.absent) == ((), (), None)
    assert (model.n_weight_bytes, model.weights_from) == (2 * 64 * 8 * 2, "safetensors headers")
    assert (model.vocab_size, model.hidden_size, model.n_layers, model.architecture) == (64, 8, 4, "Qwen2ForCausalLM")


def test_a_nested_text_configuration_is_the_language_models(tmp_path: Path) -> None:
    config = {"architectures": ["LlavaForX"], "model_type": "llava", "text_config": make.QWEN | {"vocab_size": 99}}
    model = read_checkpoint(make.folder(tmp_path / "m", config=config))
    assert (model.vocab_size, model.hidden_size, model.architecture) == (99, 8, "LlavaForX")


def test_a_quantisation_of_the_whole_model_survives_the_nesting(tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "awq", "bits": 4}, "text_config": make.QWEN}
    assert read_checkpoint(make.folder(tmp_path / "m", config=config)).config["quantization_config"]["bits"] == 4


def test_what_is_not_there_or_no_model_is_said_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not there; give a model folder or a GGUF file"):
        read_checkpoint(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"no \.gguf"):
        read_checkpoint(tmp_path / "notes.txt")


def test_an_empty_folder_lacks_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    model = read_checkpoint(tmp_path / "m")
    assert model.faults == ("config.json is not there; fetch the model's small files too",)
    assert model.tokens is None
    assert "neither tokenizer.json nor vocab.json" in str(model.why_no_tokens)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": NaN'])
def test_a_broken_configuration_is_a_fault_by_name(tmp_path: Path, text: str) -> None:
    path = make.folder(tmp_path / "m")
    (path / "config.json").write_text(text)
    assert any(fault.startswith("config.json") for fault in read_checkpoint(path).faults)


def test_an_index_whose_shards_are_not_there_names_the_first_and_keeps_the_size(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m")
    shards = {f"layer.{i}": f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
    index = {"metadata": {"total_size": 1234}, "weight_map": shards}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    make.safetensors(path / "model-00002-of-00003.safetensors", {"layer.2": ("BF16", (2, 2))})
    model = read_checkpoint(path)
    assert model.absent is not None
    assert model.absent.startswith("2 of 3 weight files of the index are not there, model-00001-of-00003.safetensors")
    assert (model.n_weight_bytes, model.weights_from) == (1234, "model.safetensors.index.json, total_size")


def test_a_tensor_that_the_index_promises_and_no_shard_has_is_a_fault(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m", shapes={"a": ("BF16", (2, 2))})
    index = {"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert any(
        "1 tensors of the index are not in the file it names, b first" in one for one in read_checkpoint(path).faults
    )


def test_an_index_may_not_point_outside_its_folder(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m")
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    assert any("outside its folder" in fault for fault in read_checkpoint(path).faults)


def test_a_download_under_way_is_a_fault(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m", shapes=SHAPES)
    (path / "model-00002.safetensors.incomplete").write_bytes(b"")
    assert any("a download under way" in fault for fault in read_checkpoint(path).faults)


def test_pickled_weights_are_counted_and_not_read(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m")
    (path / "pytorch_model.bin").write_bytes(b"\x80\x02" + b"x" * 98)
    model = read_checkpoint(path)
    assert (model.n_weight_bytes, model.weights_from) == (100, "sizes of the .bin files")
    assert "would run code" in model.notes[0]


# safetensors headers


def test_every_cut_of_a_safetensors_file_is_named_and_none_passes(tmp_path: Path) -> None:
    path = make.safetensors(tmp_path / "w.safetensors", {"a": ("F32", (3, 2)), "b": ("I64", (2,))})
    whole = path.read_bytes()
    header_end = 8 + struct.unpack("<Q", whole[:8])[0]
    assert len(read_safetensors(path).tensors) == 2
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        if cut == header_end:
            assert read_safetensors(path).header_only
            continue
        with pytest.raises(HeaderError, match="truncated"):
            read_safetensors(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(HeaderError, match="longer than its header says"):
        read_safetensors(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
        (b"<html>not found</html>", "no safetensors file"),
        (struct.pack("<Q", 4) + b"nope", "its header cannot be read"),
        (struct.pack("<Q", 2) + b"[]", "it is no object"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "its header cannot be read"),
        (
            struct.pack("<Q", 63) + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}}'.ljust(63) + b"0" * 7,
            "has 7 bytes",
        ),
        (struct.pack("<Q", 63) + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'.ljust(63), "no counts"),
    ],
)
def test_what_is_no_safetensors_header_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(HeaderError, match=said):
        read_safetensors(path)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_header_reader_fail_otherwise(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as base:
        path = Path(base) / "w.safetensors"
        path.write_bytes(content)
        with pytest.raises(HeaderError):
            read_safetensors(path)


def test_an_id_map_is_read_and_a_map_that_is_not_there_is_not(tmp_path: Path) -> None:
    data = {"d2t": struct.pack("<3q", 0, 5, -1)}
    path = make.safetensors(tmp_path / "w.safetensors", {"d2t": ("I64", (3,)), "w": ("BF16", (2,))}, data=data)
    d2t, weight = read_safetensors(path).tensors
    assert read_values(d2t) == (0, 5, -1)
    assert read_values(weight) is None
    path.write_bytes(path.read_bytes()[:20])
    assert read_values(d2t) is None


# GGUF headers

FIELDS = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 128,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "c", "[PAD3]"],
    "tokenizer.ggml.token_type": [3, 1, 1, 5],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.add_bos_token": True,
}


def test_a_gguf_header_gives_fields_tokens_and_sizes(tmp_path: Path) -> None:
    path = make.gguf(tmp_path / "m.gguf", FIELDS, [("output.weight", (4, 64), 12, 0)], n_data=144)
    model = read_checkpoint(path)
    assert model.faults == ()
    assert (model.vocab_size, model.n_layers, model.hidden_size, model.n_weight_bytes) == (4, 2, 64, 144)
    assert model.tokens is not None
    assert (model.tokens.texts, model.tokens.n_unused) == ({0: "a", 1: "b", 2: "c"}, 1)
    assert (model.tokens.special, model.tokens.add_bos) == ({"bos": 0}, True)
    assert (model.tensors[0].shape, model.tensors[0].dtype) == ((4, 64), "Q4_K")


def test_a_gguf_file_cut_anywhere_is_named(tmp_path: Path) -> None:
    path = make.gguf(tmp_path / "m.gguf", FIELDS, [("output.weight", (4, 64), 12, 0)], n_data=144)
    whole = path.read_bytes()
    n_passed = 0
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            n_passed += read_gguf(path).header_only
        except HeaderError as error:
            assert str(error).startswith("m.gguf: ")
    # the header whole (its alignment, at most 31 bytes, may be cut) and no weight at all
    assert 1 <= n_passed <= 32


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "other byte order"),
        (b"GGML" + b"\0" * 40, "no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "cannot be"),
        (b"version https://git-lfs.github.com/spec/v1\n" + b"x" * 60, "Git LFS pointer"),
        (b"", "no GGUF file"),
    ],
)
def test_what_is_no_gguf_header_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(HeaderError, match=said):
        read_gguf(path)


def test_a_split_gguf_model_lacks_its_missing_part_by_name(tmp_path: Path) -> None:
    make.gguf(tmp_path / "m-00001-of-00002.gguf", FIELDS)
    model = read_checkpoint(tmp_path)
    assert model.absent == "1 of 2 parts are not there, m-00002-of-00002.gguf first; fetch them"


@pytest.mark.engine
def test_the_packaged_models_header_reads_as_the_gguf_package_reads_it() -> None:
    import gguf

    from infra.launching.models import packaged_file

    path = packaged_file()
    theirs, ours = gguf.GGUFReader(path), read_gguf(path)
    assert [one.name for one in theirs.tensors] == [one.name for one in ours.tensors]
    for their, our in zip(theirs.tensors, ours.tensors, strict=True):
        shape = tuple(reversed(their.shape.tolist()))
        assert (their.tensor_type.name, shape, int(their.n_bytes)) == (our.dtype, our.shape, our.n_bytes)
        assert int(their.data_offset) == our.offset
    for name, value in ours.fields.items():
        said = theirs.fields[name].contents()
        assert (tuple(said) if isinstance(said, list) else said) == value, name


# tokenizers


def test_added_tokens_win_over_the_vocabulary_and_special_ids_are_found_by_text(tmp_path: Path) -> None:
    path = make.folder(
        tmp_path / "m",
        vocabulary={"a": 0, "b": 1},
        added=[{"id": 2, "content": "<|im_end|>", "special": True}],
        tokenizer_config={"eos_token": {"content": "<|im_end|>"}, "bos_token": None, "add_bos_token": False},
    )
    found = read_tokenizer(path)
    assert (found.texts, found.special, found.add_bos, found.add_eos) == (
        {0: "a", 1: "b", 2: "<|im_end|>"},
        {"eos": 2},
        False,
        None,
    )


def test_a_unigram_vocabulary_numbers_its_tokens_by_position(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m", tokenizer=False)
    (path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["a", -1]]}}))
    assert read_tokenizer(path).texts == {0: "<unk>", 1: "a"}


def test_vocab_json_stands_in_where_there_is_no_tokenizer_json(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m", tokenizer=False, vocab={"a": 0}, added_tokens={"<e>": 1})
    assert read_tokenizer(path).texts == {0: "a", 1: "<e>"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("{}", "has no model.vocab"),
        ('{"model": {"vocab": {"a": "0"}}}', "no map from token to id"),
        ('{"model": {"vocab": {"a": 0, "b": 0}}}', "one id to two tokens"),
        ('{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": "1"}]}', "has no id and content"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = make.folder(tmp_path / "m")
    (path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match=said):
        read_tokenizer(path)


def test_a_sentencepiece_model_alone_is_said_to_be_unread(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m", tokenizer=False)
    (path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(TokenizerError, match=r"only tokenizer\.model is there"):
        read_tokenizer(path)


def test_the_first_differing_ids_come_in_order_with_both_texts(tmp_path: Path) -> None:
    ours = read_tokenizer(make.folder(tmp_path / "a", vocabulary={"x": 0, "y": 1, "z": 2}))
    theirs = read_tokenizer(make.folder(tmp_path / "b", vocabulary={"x": 0, "z": 1, "y": 2, "w": 3}))
    found, n_all = differences(ours, theirs, limit=2)
    assert [tuple(one) for one in found] == [(1, "y", "z"), (2, "z", "y")]
    assert n_all == 3
