"""The fingerprint of a machine and how two are compared."""

from __future__ import annotations

import json

from isoline.runners.fingerprint import compare, fingerprint, parse_cpuinfo, parse_os_release


def test_fingerprint_is_stable_and_plain() -> None:
    """Two looks at one machine are equal, plain JSON, and know cores and memory."""
    one = fingerprint()
    assert compare(one, fingerprint()) == []
    assert json.loads(json.dumps(one)) == one
    assert one["cores_usable"] >= 1 and one["memory_bytes"] > 0
    assert one["cpu_model"]


def test_differences_are_named_in_order() -> None:
    """A changed, a lost and a new field are told with both values; a restart is no difference."""
    old = {"kernel": "1", "os": "a", "boot_id": "x"}
    new = {"kernel": "2", "boot_id": "y", "cpu_model": "c"}
    assert compare(old, new) == [("cpu_model", None, "c"), ("kernel", "1", "2"), ("os", "a", None)]


def test_cpuinfo_of_two_vendors() -> None:
    """Model and the flags that decide arithmetic are read from x86 and Arm forms; absent is null."""
    x86 = parse_cpuinfo(
        "processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: fpu avx2 sse4_2 fma\nmodel name: other\n"
    )
    assert x86 == {"model": "Fast CPU", "flags": "avx2 fma sse4_2"}
    assert parse_cpuinfo("CPU part : 0xd40\nFeatures : fp asimd sve\n") == {
        "model": "0xd40",
        "flags": "asimd sve",
    }
    assert parse_cpuinfo("") == {"model": None, "flags": None}


def test_os_release() -> None:
    """The pretty name is taken without its quotes; absent is null."""
    assert parse_os_release('NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12"\n') == "Debian GNU/Linux 12"
    assert parse_os_release("") is None
