import pytest

from isoline.errors import InfraError
from isoline.load.limits import Limits, check_limits, machine_limits


def test_too_few_open_files_are_refused_before_the_start() -> None:
    """The line names the concurrency, the limit and the remedy, and the exit code is 4."""
    with pytest.raises(
        InfraError, match=r"concurrency 512 needs 1536 open files, 1024 are allowed"
    ) as caught:
        check_limits(Limits(open_files=1024, ports=28000), 512)
    assert "ulimit -n 1536" in caught.value.line()
    assert caught.value.exit_code == 4


def test_too_few_ports_are_refused() -> None:
    """A port range that is too narrow for the concurrency is told."""
    with pytest.raises(InfraError, match="needs 1024 local ports, 1000 are allowed"):
        check_limits(Limits(open_files=None, ports=1000), 512)


def test_enough_is_enough() -> None:
    """Exactly what is needed passes, and so does what is not known."""
    check_limits(Limits(open_files=1536, ports=1024), 512)
    check_limits(Limits(open_files=None, ports=None), 10**6)


def test_this_machine_has_limits_that_carry_the_demo() -> None:
    """The real limits are read, and allow concurrency 8."""
    check_limits(machine_limits(), 8)
