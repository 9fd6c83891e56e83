"""The weight files of a model folder: which there should be, which there are, what their headers say.

The index (``model.safetensors.index.json``) names every shard and the bytes of all; without one every ``.safetensors``
file counts. Faults and notes are added to the caller's lists in words that end with what to do.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from infra.preflight.weight_headers import HeaderError, Tensor, read_safetensors

INDEX = "model.safetensors.index.json"


class FolderWeights(NamedTuple):
    """``n_bytes`` is None where nothing says it; ``absent`` names files of the index that are not there."""

    tensors: tuple[Tensor, ...]
    n_bytes: int | None
    source: str
    absent: str | None = None


def read_weights(folder: Path, faults: list[str], notes: list[str]) -> FolderWeights:
    """Headers of every weight file, bytes of weights, where they were read, and which files are not there."""
    index = json_object(folder / INDEX, faults)
    names = _listed(index, faults) if index is not None else _unlisted(folder)
    gone = [name for name in names if not (folder / name).is_file()]
    absent = absent_in_words(gone, len(names), "weight files of the index")
    under_way = sorted(one.name for end in ("incomplete", "part", "aria2") for one in folder.glob(f"*.{end}"))
    if under_way:
        faults.append(f"{under_way[0]} is a download under way; let it finish")
    tensors: list[Tensor] = []
    n_before = len(faults)
    header_only = False
    for name in names:
        if name in gone:
            continue
        try:
            read = read_safetensors(folder / name)
        except HeaderError as error:
            faults.append(str(error))
            continue
        header_only |= read.header_only
        tensors += read.tensors
    if header_only:
        notes.append("of some weight files only the header is here; sizes are the headers'")
    if index is not None and not gone and len(faults) == n_before:
        _check_index(index, tensors, faults)
    if names and not gone and len(faults) == n_before:
        return FolderWeights(tuple(tensors), sum(tensor.n_bytes for tensor in tensors), "safetensors headers")
    metadata = index.get("metadata") if index else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, int | float):
        return FolderWeights(tuple(tensors), int(total), f"{INDEX}, total_size", absent)
    if not names and (bins := sorted(folder.glob("*.bin"))):
        notes.append(f"weights are pickled ({bins[0].name}): their tensors are not read, since reading would run code")
        return FolderWeights((), sum(one.stat().st_size for one in bins), "sizes of the .bin files")
    if not names:
        notes.append("no weight file and no index is here; sizes are estimated from config.json")
    return FolderWeights(tuple(tensors), None, "not known: no whole set of weight files here", absent)


def _unlisted(folder: Path) -> list[str]:
    """Every safetensors file; of a model that is there twice (sharded and consolidated) the sharded form."""
    names = sorted(one.name for one in folder.glob("*.safetensors"))
    return [name for name in names if not name.startswith("consolidated")] or names


def _listed(index: Mapping[str, Any], faults: list[str]) -> list[str]:
    mapping = index.get("weight_map")
    if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping.values()):
        faults.append(f"{INDEX} has no weight_map; fetch it again")
        return []
    names = sorted(set(mapping.values()))
    if any("/" in name or name.startswith(".") for name in names):
        faults.append(f"{INDEX} names files outside its folder; fetch it again")
        return []
    return names


def _check_index(index: Mapping[str, Any], tensors: Iterable[Tensor], faults: list[str]) -> None:
    there = {(tensor.name, tensor.file.name) for tensor in tensors}
    lost = [name for name, file in index["weight_map"].items() if (name, file) not in there]
    if lost:
        faults.append(
            f"{len(lost)} tensors of the index are not in the file it names, {lost[0]} first; fetch them again"
        )


def absent_in_words(gone: list[str], n_all: int, what: str) -> str | None:
    """Files that are named and not there; None where all are."""
    return f"{len(gone)} of {n_all} {what} are not there, {gone[0]} first; fetch them" if gone else None


def json_object(path: Path, faults: list[str]) -> dict[str, Any] | None:
    """A JSON object, None where the file is not there; anything else is a fault."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        faults.append(f"{path.name} cannot be read ({error.strerror}); check its permissions")
        return {}
    except (ValueError, RecursionError) as error:
        faults.append(f"{path.name} is no JSON ({error}); fetch it again")
        return {}
    if not isinstance(value, dict):
        faults.append(f"{path.name} holds no object; fetch it again")
        return {}
    return value
