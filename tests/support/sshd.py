"""A real sshd of the tests' own on the loopback device, with its own keys and a configuration for ssh."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {root}/host_key
AuthorizedKeysFile {root}/key.pub
PidFile {root}/sshd.pid
PasswordAuthentication no
UsePAM no
StrictModes no
PermitRootLogin yes
MaxStartups 100
MaxSessions 100
"""

CLIENT = """\
Host 127.0.0.1 localhost
  HostName 127.0.0.1
  Port {port}
  IdentityFile {root}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""

HOSTS = ("127.0.0.1", "localhost")
"""Two names of this machine that serve as two machines."""


def missing() -> str | None:
    """Why there is no sshd here, in one line; None when there is."""
    absent = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)]
    if not Path("/usr/sbin/sshd").exists():
        absent.append("sshd")
    if absent:
        return f"needs {', '.join(absent)}: `make test SYSTEM=1` as root, or install openssh"
    return None if os.geteuid() == 0 else "needs sshd as root"


class Sshd:
    """``config`` is the file for ``ssh -F``; :attr:`HOSTS` are the names that it knows."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sshd-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for name in ("host_key", "key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.root / name)]
            subprocess.run(words, check=True, capture_output=True, timeout=30)
        (self.root / "sshd_config").write_text(SERVER.format(port=self.port, root=self.root))
        self.config = self.root / "ssh_config"
        self.config.write_text(CLIENT.format(port=self.port, root=self.root))
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own condition
        with (self.root / "sshd.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.root / "sshd_config")],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait()

    def _wait(self) -> None:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.root / "sshd.log").read_text()
            time.sleep(0.05)
        raise AssertionError("sshd does not listen")

    def close(self) -> None:
        """End it and its sessions."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.root, ignore_errors=True)
