"""GPU samples from NVML, on a library that answers what a driver answered; and the process that samples."""

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evidence_samples as sample_runs
import pytest

from evidence.folder import RunWriter
from evidence.gpu_records import GpuSample
from evidence.reading import open_run
from evidence.verify import verify
from infra.provenance.gpu_inventory import against_plan, inventory
from infra.telemetry import gpu_sampler
from infra.telemetry.gpu_sampler import SamplerProcess, from_line, sample
from infra.telemetry.nvml import NvmlError, open_nvml, read_gpu, throttle_names


class NvmlAnswerError(Exception):
    pass


class Library:
    """Two GPUs of one host as NVML describes them: units, names and errors are the driver's."""

    NVMLError = NvmlAnswerError

    def __init__(self, n_gpus: int = 2, unanswered: tuple[str, ...] = (), nvlink: bool = True) -> None:
        self.n_gpus, self.unanswered, self.nvlink = n_gpus, unanswered, nvlink
        self.n_shutdowns = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "unanswered"):
            raise_ = NvmlAnswerError("Not Supported")

            def unanswered(*_: Any) -> Any:
                raise raise_

            return unanswered
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None:
        self.n_shutdowns += 1

    def nvmlDeviceGetCount(self) -> int:
        return self.n_gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.86.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetName(self, device: int) -> str:
        return "NVIDIA RTX 4000"

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return f"GPU-{device}"

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(total=24 << 30, used=3 << 30, free=21 << 30)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        return SimpleNamespace(gpu=87, memory=0)

    def nvmlDeviceGetClockInfo(self, device: int, kind: int) -> int:
        return {1: 2520, 2: 9001}[kind]

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        return 129_500

    def nvmlDeviceGetEnforcedPowerLimit(self, device: int) -> int:
        return 130_000

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> int:
        return 5_000_500

    def nvmlDeviceGetTemperature(self, device: int, sensor: int) -> int:
        return 71

    def nvmlDeviceGetPcieThroughput(self, device: int, counter: int) -> int:
        return {0: 3, 1: 2000}[counter]  # KiB/s, 0 sent, 1 received

    def nvmlDeviceGetCurrPcieLinkGeneration(self, device: int) -> int:
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, device: int) -> int:
        return 8

    nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth

    def nvmlDeviceGetPciInfo(self, device: int) -> Any:
        return SimpleNamespace(busId=f"0000:{device}1:00.0".encode())

    def nvmlDeviceGetCudaComputeCapability(self, device: int) -> tuple[int, int]:
        return (8, 9)

    def nvmlDeviceGetMigMode(self, device: int) -> list[int]:
        raise NvmlAnswerError("Not Supported")

    def nvmlDeviceGetNvLinkState(self, device: int, link: int) -> int:
        if not self.nvlink or link >= 4:
            raise NvmlAnswerError("Not Supported")
        return 1 if link < 3 else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: int, link: int) -> Any:
        if link >= 3:
            raise NvmlAnswerError("Not Supported")
        return self.nvmlDeviceGetPciInfo(1 - device if link < 2 else 9)

    def nvmlDeviceGetFieldValues(self, device: int, fields: list[tuple[int, int]]) -> list[Any]:
        counted = {139: 10, 138: 20}
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=counted[field])) for field, _ in fields]

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: int) -> int:
        return 0x4 | 0x40

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, capability: int) -> int:
        return 0 if self.nvlink and capability == 2 else 5

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return 50


def test_a_reading_is_in_its_units_and_zero_is_a_reading() -> None:
    nvml = open_nvml(lambda name: Library())
    gpu = read_gpu(nvml, 1)
    assert (gpu.index, gpu.name, gpu.uuid) == (1, "NVIDIA RTX 4000", "GPU-1")
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (24 << 30, 3 << 30)
    assert (gpu.utilisation_ratio, gpu.memory_utilisation_ratio) == (0.87, 0.0)
    assert (gpu.power_w, gpu.power_limit_w, gpu.energy_j, gpu.temperature_celsius) == (129.5, 130.0, 5000.5, 71.0)
    assert (gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s) == (2000 * 1024.0, 3 * 1024.0)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.pcie_generation, gpu.pcie_width) == (2520, 9001, 4, 8)
    assert (gpu.nvlink_n_active, gpu.nvlink_rx_bytes, gpu.nvlink_tx_bytes) == (3, 10 * 1024, 20 * 1024)
    assert gpu.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert set(gpu.missing) == set()


def test_what_a_card_does_not_answer_is_missing_by_name_and_the_rest_is_there() -> None:
    lacking = ("nvmlDeviceGetPcieThroughput", "nvmlDeviceGetTotalEnergyConsumption")
    gpu = read_gpu(open_nvml(lambda name: Library(unanswered=lacking, nvlink=False)), 0)
    assert gpu.pcie_rx_bytes_per_s is None
    assert gpu.power_w == 129.5
    expected = {"pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "energy_j", "nvlink_n_active"}
    assert set(gpu.missing) == expected | {"nvlink_rx_bytes", "nvlink_tx_bytes"}
    assert gpu.missing["energy_j"] == "Not Supported"


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (1, ("gpu_idle",)),
        (0x88, ("hw_slowdown", "hw_power_brake_slowdown")),
        (0x1001, ("gpu_idle", "unknown_0x1000")),
    ],
)
def test_throttle_reasons_are_decoded_and_none_is_a_reading(bits: int, names: tuple[str, ...]) -> None:
    assert throttle_names(bits) == names


def no_package(name: str) -> Any:
    raise ImportError(name)


class NoDriver(Library):
    def nvmlInit(self) -> None:
        raise NvmlAnswerError("NVML Shared Library Not Found")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (no_package, "nvidia-ml-py is not installed"),
        (lambda name: NoDriver(), "NVML does not start (NVML Shared Library Not Found)"),
        (lambda name: Library(n_gpus=0), "the driver is there and has no GPU"),
        (lambda name: Library(unanswered=("nvmlDeviceGetCount",)), "cannot reach the GPUs (Not Supported)"),
    ],
)
def test_a_host_that_cannot_be_sampled_says_why_in_one_record(load: Any, said: str) -> None:
    with pytest.raises(NvmlError) as caught:
        open_nvml(load)
    assert said in str(caught.value)
    records: list[GpuSample] = []
    n_samples = sample(records.append, threading.Event(), run_id="r", open_library=lambda: open_nvml(load))
    assert (n_samples, len(records), records[0].gpus) == (0, 1, ())
    assert said in str(records[0].missing)


def test_sampling_goes_on_until_it_is_stopped_and_lets_the_library_go() -> None:
    library, records, stop = Library(), [], threading.Event()

    def sink(record: GpuSample) -> None:
        records.append(record)
        if len(records) == 3:
            stop.set()

    nvml = open_nvml(lambda name: library)
    assert sample(sink, stop, run_id="r", interval_s=0.01, open_library=lambda: nvml) == 3
    assert library.n_shutdowns == 1
    assert [len(one.gpus) for one in records] == [2, 2, 2]
    assert records[0].at_unix_s < records[1].at_unix_s < records[2].at_unix_s
    assert all(one.missing is None and one.took_s is not None for one in records)


def test_sampling_ends_with_its_duration() -> None:
    records: list[GpuSample] = []
    options = {"run_id": "r", "interval_s": 0.02, "duration_s": 0.05}
    n_samples = sample(
        records.append, threading.Event(), open_library=lambda: open_nvml(lambda _: Library()), **options
    )
    assert n_samples == len(records) == 3


H200 = Path(__file__).parent / "fixtures" / "gpu-h200.jsonl"  # one card, idle and then multiplying matrices


def test_what_a_real_card_told_reads_back_and_its_energy_counter_agrees_with_its_power() -> None:
    records = [from_line(line, "r") for line in H200.read_text().splitlines()]
    idle, busy = records[:3], records[3:]
    assert [one.gpus[0].throttle_reasons for one in idle] == [("gpu_idle",)] * 3
    assert {one.gpus[0].utilisation_ratio for one in idle} == {0.0}
    assert set(idle[0].gpus[0].missing) == {"nvlink_n_active", "nvlink_rx_bytes", "nvlink_tx_bytes"}
    first, last = busy[1], busy[3]
    spent_j = (last.gpus[0].energy_j or 0) - (first.gpus[0].energy_j or 0)
    assert spent_j / (last.at_unix_s - first.at_unix_s) == pytest.approx(603, rel=0.02)  # 591, 610 and 603 W were read
    assert all(0.04 < (one.took_s or 0) < 0.06 for one in records)


# the process


LINE = {
    "schema_version": 1,
    "run_id": "no run",
    "source": "nvml",
    "host": None,
    "at_unix_s": 5.0,
    "took_s": 0.1,
    "at_monotonic_s": 1.0,
    "interval_s": 1.0,
    "missing": None,
    "gpus": [{"index": 0, "power_w": 12.5}],
}


def child(*lines: str, then: str = "time.sleep(60)") -> tuple[str, ...]:
    return (sys.executable, "-c", f"import sys, time\nfor line in {lines!r}: print(line, flush=True)\n{then}")


def wait_for(records: list[GpuSample], n: int) -> None:
    for _ in range(500):
        if len(records) >= n:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(records)} records came, not {n}")


def test_the_childs_lines_become_records_of_this_run() -> None:
    records: list[GpuSample] = []
    process = SamplerProcess(records.append, run_id="run-1", command=child(json.dumps(LINE), json.dumps(LINE)))
    process.start()
    wait_for(records, 2)
    assert process.stop() == 2
    assert [(one.run_id, one.gpus[0].power_w) for one in records] == [("run-1", 12.5)] * 2
    assert process.missing is None


def test_a_half_written_last_line_is_no_record_and_no_failure() -> None:
    records: list[GpuSample] = []
    then = "sys.stdout.write('{\"half\": '); sys.stdout.flush(); time.sleep(60)"
    process = SamplerProcess(records.append, run_id="r", command=child(json.dumps(LINE), then=then))
    process.start()
    wait_for(records, 1)
    assert process.stop() == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/no/such/program",), "the sampler could not be started"),
        (child(then="sys.exit('no driver here')"), "the sampler ended without a sample: no driver here"),
    ],
)
def test_a_sampler_that_gives_nothing_is_one_record_with_the_reason(command: tuple[str, ...], said: str) -> None:
    records: list[GpuSample] = []
    process = SamplerProcess(records.append, run_id="r", command=command)
    process.start()
    if process._child is not None:
        process._child.wait(20)
    assert process.stop() == 0
    assert [said in str(one.missing) for one in records] == [True]


def test_what_the_sink_raises_comes_out_of_stop() -> None:
    def sink(record: GpuSample) -> None:
        raise OSError("no space left")

    process = SamplerProcess(sink, run_id="r", command=child(json.dumps(LINE)))
    process.start()
    process._thread.join(20)
    with pytest.raises(OSError, match="no space left"):
        process.stop()


@pytest.mark.parametrize("line", ["", "{", "[]", "null", '{"gpus": []}', json.dumps({**LINE, "more": 1})])
def test_a_line_that_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no GPU sample"):
        from_line(line, "r")


def test_a_refused_line_says_in_plain_words_which_field_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"no GPU sample: more: Extra inputs are not permitted, not 1: '\{") as raised:
        from_line(json.dumps({**LINE, "more": 1}), "r")
    assert "pydantic" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_the_real_sampler_on_this_host_gives_a_sample_or_the_reason() -> None:
    records: list[GpuSample] = []
    process = SamplerProcess(records.append, run_id="r", interval_s=0.2)
    process.start()
    wait_for(records, 1)
    process.stop()
    assert records[0].gpus or records[0].missing


def test_the_command_prints_lines_and_says_by_its_code_whether_there_is_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    gpu_sampler.add_arguments(parser)
    options = parser.parse_args(["--interval", "0.01", "--duration", "0.015", "--host", "gpu-1"])
    monkeypatch.setitem(sys.modules, "pynvml", Library())
    assert gpu_sampler.command(options, sys.stdout) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [from_line(line, "r").host for line in lines] == ["gpu-1", "gpu-1"]
    monkeypatch.setitem(sys.modules, "pynvml", NoDriver())
    assert gpu_sampler.command(options, sys.stdout) == 1


# the folder


def test_samples_of_a_run_are_kept_and_read_back(tmp_path: Path) -> None:
    plan = sample_runs.plan(0)
    writer = RunWriter.create(tmp_path, sample_runs.RUN_ID, sample_runs.manifest(plan, n_workers=1), plan)
    record = from_line(json.dumps(LINE), sample_runs.RUN_ID)
    writer.gpu(record)
    writer.seal()
    assert verify(tmp_path / sample_runs.RUN_ID) == ()
    assert open_run(tmp_path / sample_runs.RUN_ID).gpu == (record,)


def test_a_sample_of_another_run_is_refused_and_found(tmp_path: Path) -> None:
    from evidence.errors import EvidenceError

    plan = sample_runs.plan(0)
    writer = RunWriter.create(tmp_path, sample_runs.RUN_ID, sample_runs.manifest(plan, n_workers=1), plan)
    with pytest.raises(EvidenceError, match="of run 'other'"):
        writer.gpu(from_line(json.dumps(LINE), "other"))
    writer.seal()
    (tmp_path / sample_runs.RUN_ID / "gpu.jsonl").write_text(json.dumps({**LINE, "run_id": "other"}) + "\n")
    assert "wrong_id" in {problem.code for problem in verify(tmp_path / sample_runs.RUN_ID)}


# inventory


def test_the_inventory_names_cards_links_driver_and_cuda() -> None:
    found = inventory(lambda name: Library())
    assert (found["driver"], found["cuda"], found["missing"]) == ("570.86.15", "12.8", None)
    assert found["links"] == [{"between": [0, 1], "link": "NV2"}]
    assert (found["gpus"][1]["pci"], found["gpus"][1]["compute_capability"]) == ("0000:11:00.0", "8.9")
    assert found["gpus"][0]["missing"] == {"mig": "Not Supported"}
    plain = inventory(lambda name: Library(nvlink=False))
    assert plain["links"] == [{"between": [0, 1], "link": "SYS"}]
    assert "not installed" in inventory(no_package)["missing"]


@pytest.mark.parametrize(
    ("planned", "differences"),
    [
        ({"count": 2, "name": "RTX 4000", "memory_mib": 24467, "link": None}, 0),
        ({"count": 2, "name": None, "memory_mib": None, "link": "PCIe"}, 0),
        ({"count": 4}, 1),
        ({"count": 2, "name": "H100"}, 2),
        ({"count": 1, "memory_mib": 81559}, 1),
        ({"count": 2, "link": "NVLink"}, 1),
    ],
)
def test_the_host_is_laid_against_what_the_arm_planned(planned: dict[str, Any], differences: int) -> None:
    found = inventory(lambda name: Library(nvlink=False))
    assert len(against_plan(found, planned)) == differences, against_plan(found, planned)
    assert against_plan(inventory(no_package), planned)[0].startswith("no GPU is known here")
