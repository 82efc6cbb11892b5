"""Stand-in for nvidia-smi, amd-smi, rocm-smi, docker and others: prints their formats for a made-up machine.

Run as ``smi.py FOLDER TOOL ARGS...``; the machine is ``FOLDER/machine.json`` (see ``fakes.py``), read anew
for each output, so that a test may change it while a tool runs.
"""

import json
import sys
import time
from pathlib import Path

WAIT_S = 600


def machine(folder: Path) -> dict:
    return json.loads((folder / "machine.json").read_text())


def known(value, unit: str = "", na: str = "[N/A]") -> str:
    return na if value is None else f"{value} {unit}".strip()


def active(device: dict, reason: str) -> str:
    return "Active" if reason in device["throttle"] else "Not Active"


NVIDIA_REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown", "sync_boost", "sw_thermal_slowdown", "display_clocks_setting",
)  # fmt: skip


def nvidia_gpu(number: int, device: dict) -> str:
    reasons = "\n".join(
        f"\t\t\t<clocks_event_reason_{name}>{active(device, name)}</clocks_event_reason_{name}>"
        for name in NVIDIA_REASONS
    )
    processes = "\n".join(
        f"""\t\t\t<process_info>
\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>
\t\t\t\t<compute_instance_id>N/A</compute_instance_id>
\t\t\t\t<pid>{pid}</pid>
\t\t\t\t<type>{kind}</type>
\t\t\t\t<process_name>{name}</process_name>
\t\t\t\t<used_memory>{known(used, "MiB", "N/A")}</used_memory>
\t\t\t</process_info>"""
        for pid, name, used, kind in device["processes"]
    )
    ecc = device["ecc_uncorrected"]
    pending = "Yes" if device["remap_pending"] else "No"
    return f"""\t<gpu id="00000000:{number + 1:02X}:00.0">
\t\t<product_name>{device["name"]}</product_name>
\t\t<product_brand>NVIDIA</product_brand>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>Disabled</current_mig>
\t\t\t<pending_mig>Disabled</pending_mig>
\t\t</mig_mode>
\t\t<serial>165{number:010d}</serial>
\t\t<uuid>{device["uuid"]}</uuid>
\t\t<minor_number>{number}</minor_number>
\t\t<gpu_reset_status>
\t\t\t<reset_required>No</reset_required>
\t\t\t<drain_and_reset_recommended>N/A</drain_and_reset_recommended>
\t\t</gpu_reset_status>
\t\t<fan_speed>N/A</fan_speed>
\t\t<performance_state>P0</performance_state>
\t\t<clocks_event_reasons>
{reasons}
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>{known(device["total"], "MiB", "N/A")}</total>
\t\t\t<reserved>608 MiB</reserved>
\t\t\t<used>{known(device["used"], "MiB", "N/A")}</used>
\t\t\t<free>N/A</free>
\t\t</fb_memory_usage>
\t\t<utilization>
\t\t\t<gpu_util>{known(device["util"], "%", "N/A")}</gpu_util>
\t\t\t<memory_util>0 %</memory_util>
\t\t</utilization>
\t\t<ecc_mode>
\t\t\t<current_ecc>Enabled</current_ecc>
\t\t\t<pending_ecc>Enabled</pending_ecc>
\t\t</ecc_mode>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>2</sram_correctable>
\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t\t<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
\t\t\t\t<dram_correctable>1</dram_correctable>
\t\t\t\t<dram_uncorrectable>{known(ecc, "", "N/A")}</dram_uncorrectable>
\t\t\t</volatile>
\t\t\t<aggregate>
\t\t\t\t<dram_uncorrectable>7</dram_uncorrectable>
\t\t\t</aggregate>
\t\t</ecc_errors>
\t\t<remapped_rows>
\t\t\t<remapped_row_corr>0</remapped_row_corr>
\t\t\t<remapped_row_unc>0</remapped_row_unc>
\t\t\t<remapped_row_pending>{pending}</remapped_row_pending>
\t\t\t<remapped_row_failure>No</remapped_row_failure>
\t\t</remapped_rows>
\t\t<temperature>
\t\t\t<gpu_temp>{known(device["temp"], "C", "N/A")}</gpu_temp>
\t\t\t<memory_temp>N/A</memory_temp>
\t\t</temperature>
\t\t<gpu_power_readings>
\t\t\t<power_state>P0</power_state>
\t\t\t<average_power_draw>{known(device["power"], "W", "N/A")}</average_power_draw>
\t\t\t<instant_power_draw>{known(device["power"], "W", "N/A")}</instant_power_draw>
\t\t\t<current_power_limit>{known(device["cap"], "W", "N/A")}</current_power_limit>
\t\t\t<max_power_limit>700.00 W</max_power_limit>
\t\t</gpu_power_readings>
\t\t<module_power_readings>
\t\t\t<power_draw>N/A</power_draw>
\t\t</module_power_readings>
\t\t<clocks>
\t\t\t<graphics_clock>{device["clock"]} MHz</graphics_clock>
\t\t\t<sm_clock>{device["clock"]} MHz</sm_clock>
\t\t\t<mem_clock>{device["mem_clock"]} MHz</mem_clock>
\t\t</clocks>
\t\t<applications_clocks>
\t\t\t<graphics_clock>{known(device.get("set_clock"), "MHz", "N/A")}</graphics_clock>
\t\t\t<mem_clock>N/A</mem_clock>
\t\t</applications_clocks>
\t\t<max_clocks>
\t\t\t<graphics_clock>1980 MHz</graphics_clock>
\t\t\t<sm_clock>1980 MHz</sm_clock>
\t\t\t<mem_clock>3201 MHz</mem_clock>
\t\t</max_clocks>
\t\t<fabric>
\t\t\t<state>Completed</state>
\t\t\t<status>Success</status>
\t\t\t<cliqueId>N/A</cliqueId>
\t\t\t<clusterUuid>N/A</clusterUuid>
\t\t</fabric>
\t\t<processes>
{processes}
\t\t</processes>
\t</gpu>"""


def nvidia_xml(said: dict) -> str:
    gpus = "\n".join(nvidia_gpu(number, device) for number, device in enumerate(said["devices"]))
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Tue Dec  1 08:00:00 2026</timestamp>
\t<driver_version>{said["driver"]}</driver_version>
\t<cuda_version>{said["runtime"]}</cuda_version>
\t<attached_gpus>{len(said["devices"])}</attached_gpus>
{gpus}
</nvidia_smi_log>
"""


NVIDIA_COLUMNS = {
    "index": ("", lambda number, device: number),
    "uuid": ("", lambda number, device: device["uuid"]),
    "name": ("", lambda number, device: device["name"]),
    "memory.total": ("MiB", lambda number, device: device["total"]),
    "memory.used": ("MiB", lambda number, device: device["used"]),
    "utilization.gpu": ("%", lambda number, device: device["util"]),
    "power.draw": ("W", lambda number, device: None if device["power"] is None else f"{device['power']:.2f}"),
    "power.limit": ("W", lambda number, device: f"{device['cap']:.2f}"),
    "clocks.sm": ("MHz", lambda number, device: device["clock"]),
    "clocks.mem": ("MHz", lambda number, device: device["mem_clock"]),
    "driver_version": ("", lambda number, device: "580.82.07"),
    "clocks.max.sm": ("MHz", lambda number, device: 1980),
    "ecc.errors.corrected.volatile.total": ("", lambda number, device: 3),
    "ecc.errors.uncorrected.volatile.total": ("", lambda number, device: device["ecc_uncorrected"]),
    "temperature.gpu": ("", lambda number, device: device["temp"]),
}
RENAMED = {"clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory"}


def stamp() -> str:
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"


def nvidia_rows(said: dict, names: list) -> list:
    rows = []
    for number, device in enumerate(said["devices"]):
        cells = []
        for name in names:
            if name == "timestamp":
                cells.append(stamp())
            else:
                unit, value = NVIDIA_COLUMNS[name]
                cells.append(known(value(number, device), unit))
        rows.append(", ".join(cells))
    return rows


def nvidia_smi(folder: Path, args: list) -> None:
    said = machine(folder)
    query = next(
        (item.partition("=")[2].split(",") for item in args if item.startswith("--query-gpu=")), None
    )
    if args == ["-q", "-x"]:
        print(nvidia_xml(said), end="")
    elif any(item.startswith("--query-compute-apps=") for item in args):
        print("gpu_uuid, pid, process_name, used_gpu_memory [MiB]")
        for device in said["devices"]:
            for pid, name, used, _ in device["processes"]:
                print(f"{device['uuid']}, {pid}, {name}, {known(used, 'MiB')}")
    elif query is not None:
        heads = []
        for name in query:
            unit = NVIDIA_COLUMNS[name][0] if name != "timestamp" else ""
            heads.append(f"{RENAMED.get(name, name)} [{unit}]" if unit else RENAMED.get(name, name))
        print(", ".join(heads), flush=True)
        pause = int(args[args.index("-lms") + 1]) / 1000 if "-lms" in args else None
        print("\n".join(nvidia_rows(said, query)), flush=True)
        while pause is not None:
            time.sleep(pause)
            rows = nvidia_rows(machine(folder), query)
            if rows:
                print("\n".join(rows), flush=True)
    elif args == ["--list-gpus"]:
        for number, device in enumerate(said["devices"]):
            print(f"GPU {number}: {device['name']} (UUID: {device['uuid']})")
    else:
        sys.exit(f"Invalid combination of input arguments: {args}")


def amount(value, unit: str):
    return "N/A" if value is None else {"value": value, "unit": unit}


def amd_static(number: int, device: dict, said: dict) -> dict:
    cap = amount(device["cap"], "W")
    limit = (
        {"ppt0": {"max_power_limit": cap, "min_power_limit": amount(0, "W"), "socket_power_limit": cap}}
        if said["new"]
        else {"max_power": cap, "current_power": cap}
    )
    return {
        "gpu": number,
        "asic": {
            "market_name": device["name"], "vendor_id": "0x1002",
            "asic_serial": f"0x75E3FD74AAB3F{number:03X}",
            "target_graphics_version": "gfx950",
        },
        "bus": {"bdf": f"0000:{number + 5:02x}:00.0", "max_pcie_width": 16, "pcie_levels": "N/A"},
        "limit": limit | {"slowdown_hotspot_temperature": amount(100, "C")},
        "driver": {"name": "amdgpu", "version": said["driver"]},
        "board": {"product_name": "AMD Instinct OAM", "manufacturer_name": "AMD"},
        "vram": {"type": "HBM3E", "size": amount(device["total"], "MB")},
    }  # fmt: skip


def amd_metric(number: int, device: dict, said: dict) -> dict:
    none = dict.fromkeys(("clk", "min_clk", "max_clk", "clk_locked", "deep_sleep"), "N/A")
    clock = none | {"clk": amount(device["clock"], "MHz"), "max_clk": amount(2400, "MHz")}
    power = {
        "socket_power": amount(device["power"], "W"),
        "gfx_voltage": "N/A",
        "power_management": "ENABLED",
    }
    found = {
        "gpu": number,
        "usage": {"gfx_activity": amount(device["util"], "%"), "umc_activity": amount(0, "%")},
        "power": power,
        "clock": {"gfx_0": clock, "gfx_1": none, "mem_0": none | {"clk": amount(device["mem_clock"], "MHz")}},
        "temperature": {"edge": "N/A", "hotspot": amount(device["temp"], "C"), "mem": amount(40, "C")},
        "ecc": {"total_correctable_count": 3, "total_uncorrectable_count": device["ecc_uncorrected"]},
        "mem_usage": {
            "total_vram": amount(device["total"], "MB"), "used_vram": amount(device["used"], "MB"),
            "free_vram": amount(0, "MB"),
        },
    }  # fmt: skip
    if said["new"]:
        found["throttle"] = {
            f"{name}_violation_status": "ACTIVE" if name in device["throttle"] else "NOT ACTIVE"
            for name in ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")
        } | {"accumulation_counter": 99, "gfx_clk_below_host_limit_violation_status": "N/A"}
    else:
        power["throttle_status"] = "THROTTLED" if device["throttle"] else "UNTHROTTLED"
    return found


def amd_process(number: int, device: dict, said: dict) -> dict:
    rows = [
        {
            "process_info": {
                "name": name, "pid": pid, "mem_usage": amount(used, "MB"),
                "memory_usage": {"gtt_mem": amount(0, "MB"), "vram_mem": amount(used, "MB")},
                "cu_occupancy": amount(0, "%"),
            }
        }
        for pid, name, used, _ in device["processes"]
    ]  # fmt: skip
    return {"gpu": number, "process_list": rows or [{"process_info": "No running processes detected"}]}


AMD = {
    "static": amd_static,
    "metric": amd_metric,
    "process": amd_process,
    "list": lambda number, device, said: {
        "gpu": number,
        "bdf": f"0000:{number + 5:02x}:00.0",
        "uuid": device["uuid"],
    },
}


def amd_monitor(said: dict) -> list:
    return [
        f"{int(time.time())},{number},0,{known(device['power'], '', 'N/A')},{device['cap']},"
        f"{known(device['temp'], '', 'N/A')},40,"
        f"{device['clock']},{known(device['util'], '', 'N/A')},0,{device['mem_clock']},"
        f"{known(device['used'], '', 'N/A')},{device['total'] - (device['used'] or 0)},{device['total']},1"
        for number, device in enumerate(said["devices"])
    ]


AMD_HEAD = (
    "timestamp,gpu,xcp,power_usage,max_power,hotspot_temperature,memory_temperature,gfx_clk,gfx,mem,mem_clock,"
    "vram_used,vram_free,vram_total,vram_percent"
)


def amd_smi(folder: Path, args: list) -> None:
    said = machine(folder)
    verb = args[0]
    if verb == "version":
        print(json.dumps([{"tool": "AMDSMI Tool", "version": "26.1.0", "rocm_version": said["runtime"]}]))
    elif verb == "monitor":
        print(AMD_HEAD, flush=True)
        while True:
            print("\n".join(amd_monitor(machine(folder))), flush=True)
            time.sleep(float(args[args.index("--watch") + 1]))
    else:
        rows = [AMD[verb](number, device, said) for number, device in enumerate(said["devices"])]
        if said["new"] and verb != "list":
            print(json.dumps({"gpu_data": rows}, indent=4))
        else:
            print("WARNING: User is missing the following required groups: render, video.")
            print(json.dumps(rows, indent=4))


def rocm_smi(folder: Path, args: list) -> None:
    said = machine(folder)
    found = {}
    for number, device in enumerate(said["devices"]):
        card = {
            "Unique ID": f"0x{number:016x}", "PCI Bus": f"0000:{number + 5:02X}:00.0",
            "Card Series": device["name"], "Card Model": "0x74a1", "GFX Version": "gfx942",
            "Temperature (Sensor edge) (C)": "N/A",
            "Temperature (Sensor junction) (C)": known(device["temp"], "", "N/A"),
            "Current Socket Graphics Package Power (W)": known(device["power"], "", "N/A"),
            "Max Graphics Package Power (W)": str(float(device["cap"])),
            "sclk clock speed:": f"({device['clock']}Mhz)",
            "mclk clock speed:": f"({device['mem_clock']}Mhz)",
            "GPU use (%)": known(device["util"], "", "N/A"),
            "VRAM Total Memory (B)": str(device["total"] << 20),
            "VRAM Total Used Memory (B)": str((device["used"] or 0) << 20),
        }  # fmt: skip
        found[f"card{number}"] = card
    system = {"Driver version": said["driver"]}
    for device in said["devices"]:
        for pid, name, used, _ in device["processes"]:
            system[f"PID{pid}"] = f"{name}, 1, {(used or 0) << 20}, 0, 0"
    if "--showpids" in args:
        found["system"] = system
    print(json.dumps(found))


def other(folder: Path, tool: str, args: list) -> None:
    said = machine(folder)["tools"].get(tool, {})
    print(said.get(" ".join(args), said.get("", "")))


TOOLS = {"nvidia-smi": nvidia_smi, "amd-smi": amd_smi, "rocm-smi": rocm_smi}


def main() -> None:
    folder, tool, *args = sys.argv[1:]
    said = machine(Path(folder))
    with Path(folder, "calls").open("a") as calls:
        calls.write(json.dumps([tool, *args]) + "\n")
    if said.get("hang") == tool:
        time.sleep(WAIT_S)
    if (said.get("fail") or {}).get(tool):
        print(said["fail"][tool])
        sys.exit(9)
    if tool in TOOLS:
        TOOLS[tool](Path(folder), args)
    else:
        other(Path(folder), tool, args)


if __name__ == "__main__":
    main()
