"""The fixed parts of a batch script: its functions in bash, and what they promise.

Every wait has an end, every external command a time-out. Slurm's signals reach this script (a
cancelled or preempted job, a time limit) and the programs; the clients of the steps ignore them, so
that a program has time to end by itself and its code is still written.
"""

from __future__ import annotations

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, Slurm

NOTICE_S = 30
"""How long before its end the job is told, s."""

STOP_S = 20
"""How long programs have to end after SIGTERM, s; Slurm itself allows 30 s (KillWait) when it cancels."""

COLLECT_S = 180
"""How long a job without a shared folder waits at its end for its files to be fetched, s."""


def head(nodes: int, *, is_shared: bool) -> list[str]:
    """The scratch folder, the log, and the names of the nodes."""
    rows = ["set -u", "scratch={scratch}", 'mkdir -p "$scratch" || exit 90']
    if not is_shared:
        # The folder is this node's own: Slurm could not have opened a log in it before now.
        rows.append('exec >>"$scratch/job.log" 2>&1')
    return [
        *rows,
        'mapfile -t nodes < <(timeout 30 scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f"if (( ${{#nodes[@]}} < {nodes} )); then",
        f'  echo "isoline: {nodes} nodes are needed, ${{#nodes[@]}} were given"; exit 91',
        "fi",
        "# Names are for Slurm, hosts for connections: what a name resolves to, else Slurm's own address.",
        "hosts=()",
        'for node in "${nodes[@]}"; do',
        '  if ! getent hosts "$node" >/dev/null; then',
        '    node=$(timeout 30 scontrol show node -o "$node" | sed -n "s/.* NodeAddr=\\([^ ]*\\).*/\\1/p")',
        "  fi",
        '  hosts+=("$node")',
        "done",
        'printf "%s\\n" "${nodes[@]}" >"$scratch/nodes"; printf "%s\\n" "${hosts[@]}" >"$scratch/hosts"',
    ]


def contained() -> list[str]:
    """What runs on a node around a container: a signal stops the container, not only its client."""
    return [
        "",
        "# On a node: run a container, stop it when told to, remove it in any case.",
        "read -r -d '' contained <<'NODE' || :",
        'runtime=$1 name="" code=0',
        "for (( i = 1; i < $#; i++ )); do",
        "  if [[ ${!i} == --name ]]; then j=$(( i + 1 )); name=${!j}; break; fi",
        "done",
        "end() {",
        "  trap '' TERM INT HUP",
        f'  timeout {STOP_S + 5} "$runtime" stop -t {STOP_S - 5} "$name" >/dev/null 2>&1',
        "}",
        "trap end TERM INT HUP",
        '"$@" & client=$!',
        'wait "$client"; code=$?',
        'while kill -0 "$client" 2>/dev/null; do wait "$client"; code=$?; done',
        'timeout 20 "$runtime" rm --force "$name" >/dev/null 2>&1',
        'exit "$code"',
        "NODE",
        "",
        "# On a node: remove what this launch left there.",
        "read -r -d '' sweep <<'NODE' || :",
        'found=$(timeout 20 "$1" ps --all --quiet --filter label=isoline.run={owner.run}'
        " --filter label=isoline.launch={owner.launch})",
        '[[ -z $found ]] || timeout 40 "$1" rm --force $found',
        "NODE",
    ]


WARM = ".isoline-warm"
"""A file in a folder of compiled kernels: a server got ready with it, and its step time was stable."""

DRIVER = [
    "driver=$(cat /sys/module/{nvidia,amdgpu}/version 2>/dev/null | head -n 1)",
    "driver=${driver:-$(uname -r)}; driver=${driver//[^A-Za-z0-9._-]/_}",
]
"""The driver of a node's accelerators; one that is part of the kernel has the kernel's version."""


def compiled_on_first(folder: str) -> list[str]:
    """On the first node: the folder of compiled kernels for its driver, which every node has its own of.

    :param folder: the folder's path without the driver.
    """
    return [
        "",
        "# Compiled kernels are kept by image, SKU and driver.",
        *DRIVER,
        f"compiled={folder}-$driver",
    ]


COMPILED_MARKS = {"@compiled@": "$compiled", "@driver@": "$driver"}

COMPILED_ROWS = [
    *DRIVER,
    "if [[ $driver != @driver@ ]]; then",
    '  echo "isoline: driver $driver on $(uname -n), @driver@ on the first node" >&2; exit 95',
    "fi",
    "mkdir -p @compiled@",
    f"[[ -e @compiled@/{WARM} ]] || echo cold",
]
"""On every node: that folder is there, for a driver that is the first node's."""


COUNT = {
    "NVIDIA": ("nvidia-smi -L", "^GPU "),
    "AMD": ("cat /sys/class/kfd/kfd/topology/nodes/*/gpu_id", "[1-9]"),
}
"""What prints a line for each device of a node, and what these lines hold; of AMD the kernel's own list."""

NODE_NAME = "${SLURMD_NODENAME:-$(uname -n)}"

USERS = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv,noheader"


def asks_for_devices(slurm: Slurm) -> bool:
    """Whether the pool's own lines say how many accelerators a job gets."""
    return any(item.startswith(("--gres", "--gpus")) for item in slurm.extra)


def device_rows(pool: Pool, slurm: Slurm) -> list[str]:
    """On every node, before anything starts: its devices are there, and nobody else uses them.

    A tool that is not there, or fails, proves nothing: the server will say.
    """
    vendor = load_catalog().skus[pool.sku].vendor
    rows = []
    if vendor in COUNT and not asks_for_devices(slurm):
        (command, pattern), count = COUNT[vendor], pool.accelerators
        rows += [
            f"found=$(timeout 60 {command} 2>/dev/null | grep -c '{pattern}') || :",
            f"if (( found > 0 && found < {count} )); then",
            f'  echo "isoline: node {NODE_NAME}: $found of {count} devices" >&2; exit 97',
            "fi",
        ]
    if vendor == "NVIDIA" and slurm.exclusive:
        rows += [
            f"users=$(timeout 60 {USERS} 2>/dev/null) || users=",
            "if [[ $users == *,*,* ]]; then",
            f'  echo "isoline: node {NODE_NAME}: a device is used by $users" >&2; exit 96',
            "fi",
        ]
    return rows


def prepare(
    rows: list[str],
    addresses: dict[str, str],
    nodes: int,
    limit_s: int,
    *,
    has_compiled: bool = False,
) -> list[str]:
    """Write the files on every node, in ``limit_s`` seconds. Codes 95 to 97 of a row are the script's.

    :param addresses: marks in the files -> what they are in this script.
    :param has_compiled: whether folders of compiled kernels are among it; what became of them is
        written to ``compiled``: ``cold`` where a node's is new, and its path.
    """
    marks = [f"prepare=${{prepare//{mark}/{value}}}" for mark, value in sorted(addresses.items())]
    failed = "|| { code=$?; exit $(( code >= 95 && code <= 97 ? code : 92 )); }"
    end = [failed]
    if has_compiled:
        end = [
            f'>"$scratch/.prepared" {failed}',
            'echo "$(grep -m 1 -x cold "$scratch/.prepared" || echo warm) $compiled" >"$scratch/compiled"',
        ]
    return [
        "",
        "# On every node: folders and files.",
        "read -r -d '' prepare <<'NODE' || :",
        *rows,
        "NODE",
        *marks,
        f"timeout {limit_s} srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 "
        '--nodelist="$(IFS=,; echo "${nodes[*]:0:' + str(nodes) + '}")" '
        f'--input=none bash -c "$prepare" {end[0]}',
        *end[1:],
    ]


def functions(sweep: list[str], *, is_shared: bool) -> list[str]:
    """start, ended, await, and what happens on every way out."""
    rows = [
        "",
        "# start NAME NODES WORDS...: a step; its output and, at its end, its code lie in scratch.",
        "start() {",
        "  local name=$1 where=$2 code=0; shift 2",
        "  {",
        "    trap '' TERM INT HUP  # the step's programs are told by Slurm itself",
        '    srun --overlap --cpu-bind=none --input=none --nodelist="$where" "$@" \\',
        '      >"$scratch/$name.log" 2>&1 || code=$?',
        '    echo "$code" >"$scratch/.$name.exit" && mv "$scratch/.$name.exit" "$scratch/$name.exit"',
        "  } &",
        "}",
        "# ended: whether a program ended, which none should.",
        'ended() { compgen -G "$scratch/*.exit" >/dev/null; }',
        "# await NAME NODE PORT PAGE SECONDS: until it answers with status 200, or listens where PAGE is -.",
        "await() {",
        "  local end=$(( SECONDS + $5 ))",
        '  until timeout 10 bash -c "$ask" isoline "$2" "$3" "$4" 2>/dev/null; do',
        "    if ended; then exit 93; fi",
        '    if (( SECONDS >= end )); then echo "isoline: $1 is not ready after $5 s"; exit 94; fi',
        "    sleep 1",
        "  done",
        "}",
        "read -r -d '' ask <<'NODE' || :",
        'exec 3<>"/dev/tcp/$1/$2" || exit 1',
        "[[ $3 != - ]] || exit 0",
        'printf "GET %s HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n" "$3" "$1" >&3',
        "read -r _ status _ <&3 && [[ $status == 200 ]]",
        "NODE",
        "finish() {",
        "  local code=$? end=0",
        "  trap '' TERM INT HUP",
        '  timeout 20 scancel --quiet --signal=TERM "$SLURM_JOB_ID"  # every step, not this script',
        f"  end=$(( SECONDS + {STOP_S + 5} ))",
        "  while [[ -n $(jobs -pr) ]] && (( SECONDS < end )); do sleep 1; done",
    ]
    if sweep:
        rows.append(
            '  timeout 90 srun --overlap --nodes="${#nodes[@]}" --ntasks="${#nodes[@]}" --ntasks-per-node=1'
            f" --input=none {' '.join(sweep)}"
        )
    if not is_shared:
        rows += [
            "  # Nobody else sees these files: stay until they were fetched.",
            '  echo "$code" >"$scratch/finished"',
            f"  end=$(( SECONDS + {COLLECT_S} ))",
            "  until [[ -e $scratch/collected ]] || (( SECONDS >= end )); do sleep 1; done",
            '  timeout 60 srun --overlap --nodes="${#nodes[@]}" --ntasks="${#nodes[@]}" --ntasks-per-node=1'
            ' --input=none rm -rf "$scratch"',
        ]
    return [
        *rows,
        '  exit "$code"',
        "}",
        "trap finish EXIT",
        "trap 'exit 143' TERM INT HUP",
        'rm -f "$scratch"/*.exit',
    ]
