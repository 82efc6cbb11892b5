"""Images that staging makes: a base with the packages of a recipe's sidecars, by each pool's own tool.

Nothing of it happens on allocated devices: container pools make it on each machine with their runtime,
Slurm pools once, on the machine that stages, as the one file that jobs use.
"""

from __future__ import annotations

from isoline.catalog.pools import Pool
from isoline.recipes.derived import KEPT, containerfile, definition, pip_env, pip_words
from isoline.runners.machine.hosts import Host
from isoline.runners.staging.images import by_digest, explained, image_file
from isoline.runners.staging.items import Item

BUILD_S = 7200.0

ENROOT = """
name="isoline-$$"; rc=$(mktemp)
trap 'enroot remove --force "$name" >/dev/null 2>&1; rm -f "$rc"' EXIT
# The image's own entry point would be started with our words: this is one that runs them.
echo 'exec "$@"' >"$rc"
enroot create --name "$name" "$1"
enroot start --root --rw --rc "$rc" --env NVIDIA_VISIBLE_DEVICES=void --env PIP \
  "$name" "${@:3}"
enroot export --output "$2" "$name"
"""

APPTAINER = """
trap 'rm -f "$2.def"' EXIT
printf '%s' "$1" >"$2.def"
apptainer build --force --fakeroot "$2" "$2.def"
"""

RUNTIME = """
printf '%s' "$1" | "${@:4}" -
trap '"$4" image rm "$3" >/dev/null 2>&1' EXIT
"$4" save --output "$2" "$3"
"""


def build_words(runtime: str, name: str, pool: Pool) -> list[str]:
    """docker's or podman's command that makes an image; ``-`` behind it: of the file on standard input."""
    words = [runtime, "build", "--network", "host", "--force-rm", "--tag", name]
    words += ["--layers=false"] if runtime == "podman" else []  # it would keep each step as an image
    for key in sorted(pip_env(pool).keys() - KEPT.keys()):
        words += ["--build-arg", key]  # its value is in the environment: it may hold a password
    return words


def build_image(host: Host, runtime: str, pool: Pool, item: Item) -> None:
    """Make the image on a machine of a container pool.

    :raises NodeJobError: with the line that says why pip or the runtime could not.
    :raises ToolUnavailableError: when the runtime gives no answer.
    """
    text = containerfile(by_digest(item.base), item.packages, sorted(pip_env(pool)))
    done = host.run([*build_words(runtime, item.id, pool), "-"], timeout_s=BUILD_S, input=text)
    if not done.ok:
        raise explained(f"{done.stdout}\n{done.stderr}", f"{runtime} build {item.id}", host.name)


def make_words(pool: Pool, item: Item) -> list[str]:
    """The command that makes the image's file, ``{out}``, once for all nodes of a Slurm pool."""
    assert pool.slurm is not None
    env, base = pip_env(pool), by_digest(item.base)
    kind = pool.slurm.container
    if kind in ("docker", "podman"):
        text = containerfile(base, item.packages, sorted(env))
        script = ["bash", "-eo", "pipefail", "-c", RUNTIME, "isoline", text, "{out}", item.id]
        return [*script, *build_words(kind, item.id, pool)]
    base_file = image_file(pool, item.base) or ""
    if kind == "apptainer":
        text = definition(base_file, item.packages, env)
        return ["bash", "-ec", APPTAINER, "isoline", text, "{out}"]
    given = " ".join(
        f"--env {name}={KEPT[name]}" if name in KEPT else f"--env {name}" for name in sorted(env)
    )
    told = ENROOT.replace("--env PIP", given)
    return ["bash", "-ec", told, "isoline", base_file, "{out}", *pip_words(item.packages)]
