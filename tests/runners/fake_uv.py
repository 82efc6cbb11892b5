"""A stand-in for uv: ``fake_uv.py FOLDER ARG...``. Notes each call; FOLDER/fail and FOLDER/hold steer it."""

import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
args = sys.argv[2:]
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(args) + "\n")
if args[0] == "--version":
    print("uv 0 (fake)")
    sys.exit(0)
if (folder / "fail").exists():
    print("error: failed to fetch https://user:secret@index.example/simple/x/\ncaused by: no network")
    sys.exit(2)
if args[0] == "venv":
    target = Path(args[-1])
    (target / "bin").mkdir(parents=True)
    (target / "bin" / "python").symlink_to(sys.executable)
    while (folder / "hold").exists():
        time.sleep(0.02)
elif "--target" in args:
    target = Path(args[args.index("--target") + 1])
    (target / "pkg").mkdir(parents=True, exist_ok=True)
    (target / "pkg" / "w.gguf").write_bytes((folder / "content").read_bytes())
else:
    python = Path(args[args.index("--python") + 1])
    site = python.parents[1] / "lib" / "python3.11" / "site-packages" / "Thing-1.2.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: Thing\nVersion: 1.2\n")
    time.sleep(float(os.environ.get("FAKE_UV_SLOW", "0")))
