"""``nvidia-smi``: its XML (``-q -x``) and its CSV (``--query-gpu``, ``--query-compute-apps``). Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from isoline.catalog.skus import Sku
from isoline.runners.machine.devices.model import (
    Device,
    DeviceProcess,
    DeviceReport,
    UnreadableOutputError,
    count,
    mebibytes,
    number,
    share,
    sku_of,
    text,
    watts,
)

XML_COMMAND = ("nvidia-smi", "-q", "-x")
APPS_COMMAND = (
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory",
    "--format=csv",
)

FACTS = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "power.draw",
    "power.limit",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "temperature.gpu",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
)
FACTS_COMMAND = ("nvidia-smi", f"--query-gpu={','.join(FACTS)}", "--format=csv")
"""The devices once more, where the XML cannot be read: a process name with ``&`` spoils it."""

QUERY = (
    "timestamp",
    "index",
    "uuid",
    "power.draw",
    "utilization.gpu",
    "memory.used",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
)
"""Columns that the sampler asks for."""

IDLE = "gpu_idle"


def query_command(interval_ms: int) -> tuple[str, ...]:
    """A command that prints :data:`QUERY` for every device, again and again."""
    return ("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv", "-lms", str(interval_ms))


def column(header: str) -> str:
    """``power.draw [W]`` -> ``power.draw``."""
    return header.partition(" [")[0].strip()


def rows_of(output: str) -> list[dict[str, str]]:
    """Rows of a CSV with its header, by bare column name.

    :raises UnreadableOutputError: where a row has another number of cells than the header.
    """
    try:
        lines = [row for row in csv.reader(io.StringIO(output), skipinitialspace=True) if row]
    except csv.Error as error:
        raise UnreadableOutputError(f"nvidia-smi printed no table: {error}") from None
    if not lines:
        return []
    names = [column(cell) for cell in lines[0]]
    if any(len(line) != len(names) for line in lines):
        raise UnreadableOutputError("nvidia-smi printed rows that do not fit its header")
    return [dict(zip(names, (cell.strip() for cell in line), strict=True)) for line in lines[1:]]


def _from_row(row: Mapping[str, str], skus: Mapping[str, Sku]) -> Device:
    index = count(row.get("index"))
    if index is None:
        raise UnreadableOutputError("nvidia-smi printed a row without the device's index")
    name = text(row.get("name"))
    return Device(
        index=index,
        uuid=text(row.get("uuid")),
        name=name,
        sku=sku_of(name, "nvidia", skus),
        memory_total_mb=mebibytes(row.get("memory.total")),
        memory_used_mb=mebibytes(row.get("memory.used")),
        utilisation=share(row.get("utilization.gpu")),
        power_w=watts(row.get("power.draw")),
        power_cap_w=watts(row.get("power.limit")),
        clock_mhz=number(row.get("clocks.sm") or row.get("clocks.current.sm")),
        clock_max_mhz=number(row.get("clocks.max.sm")),
        memory_clock_mhz=number(row.get("clocks.mem") or row.get("clocks.current.memory")),
        temperature_c=number(row.get("temperature.gpu")),
        ecc_uncorrected=count(row.get("ecc.errors.uncorrected.volatile.total")),
        ecc_corrected=count(row.get("ecc.errors.corrected.volatile.total")),
    )


def parse_apps(output: str) -> dict[str, tuple[DeviceProcess, ...]]:
    """Processes by device UUID, out of ``--query-compute-apps`` CSV with a header.

    Names are not quoted: what lies between the second comma and the last one is the name.
    """
    found: dict[str, tuple[DeviceProcess, ...]] = {}
    header, *lines = [line for line in output.splitlines() if line.strip()] or [""]
    if not header.startswith("gpu_uuid"):
        raise UnreadableOutputError("nvidia-smi printed no list of processes")
    for line in lines:
        uuid, _, rest = line.partition(", ")
        pid, _, rest = rest.partition(", ")
        name, _, memory = rest.rpartition(", ")
        if not pid.isdigit():
            raise UnreadableOutputError("nvidia-smi printed a process without its pid")
        found[uuid] = (*found.get(uuid, ()), DeviceProcess(int(pid), text(name), mebibytes(memory)))
    return found


def parse_facts(facts: str, apps: str, skus: Mapping[str, Sku]) -> DeviceReport:
    """The report out of the two CSV lists: what the XML says beyond them is None.

    :raises UnreadableOutputError: when one is unreadable.
    """
    rows = rows_of(facts)
    devices = with_apps([_from_row(row, skus) for row in rows], parse_apps(apps))
    driver = text(rows[0].get("driver_version")) if rows else None
    return DeviceReport("nvidia", "nvidia-smi", driver, None, devices)


def with_apps(devices: Sequence[Device], apps: Mapping[str, tuple[DeviceProcess, ...]]) -> tuple[Device, ...]:
    """The devices with their processes."""
    return tuple(replace(item, processes=apps.get(item.uuid or "", ())) for item in devices)


def parse_xml(output: str, skus: Mapping[str, Sku]) -> DeviceReport:
    """Everything out of ``nvidia-smi -q -x``.

    :raises UnreadableOutputError: when it is no such document, or has no list of devices.
    """
    try:
        root = ElementTree.fromstring(output)
    except ElementTree.ParseError as error:
        raise UnreadableOutputError(f"nvidia-smi printed no readable XML: {error}") from None
    if root.tag != "nvidia_smi_log" or root.find("attached_gpus") is None:
        raise UnreadableOutputError("nvidia-smi printed XML without the list of devices")
    found = tuple(_from_xml(gpu, index, skus) for index, gpu in enumerate(root.findall("gpu")))
    attached = count(root.findtext("attached_gpus"))
    if attached is not None and attached != len(found):
        raise UnreadableOutputError(f"nvidia-smi names {attached} devices and describes {len(found)}")
    return DeviceReport(
        vendor="nvidia",
        tool="nvidia-smi",
        driver=text(root.findtext("driver_version")),
        runtime=text(root.findtext("cuda_version")),
        devices=found,
    )


def _first(gpu: Element, *paths: str) -> str | None:
    """The first path that says something: older and newer drivers name the same thing differently."""
    for path in paths:
        said = text(gpu.findtext(path))
        if said is not None:
            return said
    return None


def _from_xml(gpu: Element, index: int, skus: Mapping[str, Sku]) -> Device:
    name = text(gpu.findtext("product_name"))
    power, older = "gpu_power_readings/", "power_readings/"
    return Device(
        # minor_number is /dev/nvidia<n>; the tool's own index is the order of the document.
        index=index,
        uuid=text(gpu.findtext("uuid")),
        name=name,
        sku=sku_of(name, "nvidia", skus),
        memory_total_mb=mebibytes(gpu.findtext("fb_memory_usage/total")),
        memory_used_mb=mebibytes(gpu.findtext("fb_memory_usage/used")),
        utilisation=share(gpu.findtext("utilization/gpu_util")),
        power_w=watts(
            _first(
                gpu,
                power + "average_power_draw",
                power + "power_draw",
                power + "instant_power_draw",
                older + "power_draw",
            )
        ),
        power_cap_w=watts(
            _first(
                gpu,
                power + "current_power_limit",
                older + "enforced_power_limit",
                older + "power_limit",
            )
        ),
        clock_mhz=number(gpu.findtext("clocks/sm_clock")),
        clock_max_mhz=number(gpu.findtext("max_clocks/sm_clock")),
        clock_set_mhz=number(gpu.findtext("applications_clocks/graphics_clock")),
        memory_clock_mhz=number(gpu.findtext("clocks/mem_clock")),
        temperature_c=number(gpu.findtext("temperature/gpu_temp")),
        ecc_corrected=_errors(gpu, "correctable"),
        ecc_uncorrected=_errors(gpu, "uncorrectable"),
        throttle=_throttle(gpu),
        needs_repair=_repair(gpu),
        processes=_processes(gpu),
        bus=gpu.get("id"),
        fabric=_fabric(gpu),
    )


def _errors(gpu: Element, kind: str) -> int | None:
    """The sum of the volatile counts of one kind; None where ECC does not count."""
    counts = [
        found
        for item in gpu.findall("ecc_errors/volatile/*")
        if (item.tag.endswith(f"_{kind}") or f"_{kind}_" in item.tag)
        and (found := count(item.text)) is not None
    ]
    return sum(counts) if counts else None


def _throttle(gpu: Element) -> tuple[str, ...] | None:
    block = gpu.find("clocks_event_reasons")
    if block is None:
        block = gpu.find("clocks_throttle_reasons")
    if block is None:
        return None
    names = [
        (item.tag.partition("_reason_")[2], (item.text or "").strip())
        for item in block
        if "_reason_" in item.tag
    ]
    known = [pair for pair in names if text(pair[1]) is not None]
    if not known:
        return None
    return tuple(name for name, state in known if state == "Active" and name != IDLE)


def _repair(gpu: Element) -> str | None:
    """Why the device wants to be reset or replaced, where it says so."""
    for path, why in (
        ("remapped_rows/remapped_row_failure", "a row of its memory could not be remapped"),
        ("remapped_rows/remapped_row_pending", "a row remap is pending until it is reset"),
        ("retired_pages/pending_retirement", "a page retirement is pending until it is reset"),
        ("gpu_reset_status/reset_required", "it asks for a reset"),
        ("gpu_recovery_action", None),
    ):
        said = text(gpu.findtext(path))
        if said is not None and said != "No":
            return why or f"it asks for recovery: {said}"
    return None


def _fabric(gpu: Element) -> str | None:
    """``Completed, Success, clique 0``: the state of NVLink over several trays."""
    said = [text(gpu.findtext(f"fabric/{name}")) for name in ("state", "status")]
    clique = text(gpu.findtext("fabric/cliqueId"))
    words = [word for word in (*said, f"clique {clique}" if clique else None) if word]
    return ", ".join(words) or None


def _processes(gpu: Element) -> tuple[DeviceProcess, ...] | None:
    block = gpu.find("processes")
    if block is None or (not len(block) and text(block.text) is None and (block.text or "").strip() == "N/A"):
        return None
    found = []
    for item in block.findall("process_info"):
        pid = count(item.findtext("pid"))
        if pid is not None and text(item.findtext("type")) != "G":  # a display server computes nothing
            memory = mebibytes(item.findtext("used_memory"))
            found.append(DeviceProcess(pid, text(item.findtext("process_name")), memory))
    return tuple(found)
