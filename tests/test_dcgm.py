"""What DCGM's exporter told Prometheus, as GPU samples."""

from typing import Any

import pytest

from infra.telemetry import dcgm

LABELS = {"gpu": "0", "UUID": "GPU-a", "modelName": "NVIDIA L4", "Hostname": "node-1", "device": "nvidia0"}


def series(name: str, *values: tuple[float, str], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **LABELS, **labels}, "values": [list(one) for one in values]}


def test_series_of_one_instant_become_one_sample_in_our_units() -> None:
    result = [
        series("DCGM_FI_DEV_FB_USED", (10.0, "1000")),
        series("DCGM_FI_DEV_FB_FREE", (10.0, "24")),
        series("DCGM_FI_DEV_GPU_UTIL", (10.0, "87")),
        series("DCGM_FI_DEV_SM_CLOCK", (10.0, "2040")),
        series("DCGM_FI_DEV_POWER_USAGE", (10.0, "71.5")),
        series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", (10.0, "5000")),
        series("DCGM_FI_PROF_PCIE_RX_BYTES", (10.0, "4096")),
        series("DCGM_FI_PROF_NVLINK_TX_BYTES", (10.0, "0")),
        series("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", (10.0, "4")),
        series("DCGM_FI_DEV_XID_ERRORS", (10.0, "0")),
    ]
    (sample,) = dcgm.of_matrix(result, run_id="r", interval_s=5.0)
    assert (sample.source, sample.host, sample.at_unix_s, sample.at_monotonic_s) == ("dcgm", "node-1", 10.0, None)
    (gpu,) = sample.gpus
    assert (gpu.index, gpu.name, gpu.uuid) == (0, "NVIDIA L4", "GPU-a")
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (1000 << 20, 1024 << 20)
    assert (gpu.utilisation_ratio, gpu.sm_clock_mhz, gpu.power_w, gpu.energy_j) == (
        pytest.approx(0.87),
        2040,
        71.5,
        5.0,
    )
    assert (gpu.pcie_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s) == (4096.0, 0.0)
    assert gpu.throttle_reasons == ("sw_power_cap",)
    assert gpu.missing["temperature_celsius"] == "the exporter does not tell it"
    assert "power_w" not in gpu.missing


def test_samples_come_in_order_with_each_hosts_gpus_together() -> None:
    result = [
        series("DCGM_FI_DEV_GPU_TEMP", (20.0, "50"), (10.0, "40")),
        series("DCGM_FI_DEV_GPU_TEMP", (10.0, "41"), gpu="1"),
        series("DCGM_FI_DEV_GPU_TEMP", (10.0, "60"), Hostname="node-2"),
    ]
    found = dcgm.of_matrix(result, run_id="r")
    seen = [(one.at_unix_s, one.host, [gpu.temperature_celsius for gpu in one.gpus]) for one in found]
    assert seen == [(10.0, "node-1", [40.0, 41.0]), (10.0, "node-2", [60.0]), (20.0, "node-1", [50.0])]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "9223372036854775794", "-1", "x"])
def test_a_blank_value_is_missing_and_not_a_number(value: str) -> None:
    (sample,) = dcgm.of_matrix([series("DCGM_FI_DEV_POWER_USAGE", (10.0, value))], run_id="r")
    assert sample.gpus[0].power_w is None
    assert repr(value) in sample.gpus[0].missing["power_w"]


def test_a_slice_of_a_gpu_and_a_series_without_a_number_are_left_out() -> None:
    result = [
        series("DCGM_FI_DEV_POWER_USAGE", (10.0, "1"), GPU_I_ID="3"),
        series("DCGM_FI_DEV_POWER_USAGE", (10.0, "1"), gpu=""),
        series("up", (10.0, "1")),
    ]
    assert dcgm.of_matrix(result, run_id="r") == []


def test_the_absence_of_series_is_a_record_with_its_reason() -> None:
    record = dcgm.nothing("Prometheus holds no series DCGM_FI_*", run_id="r", at_unix_s=1.0)
    assert (record.gpus, record.missing) == ((), "Prometheus holds no series DCGM_FI_*")
