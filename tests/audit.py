"""Compare the locked versions with known vulnerabilities: `make audit`.

It fails on a vulnerability that locks/accepted.txt does not list, and on a listed one that no package has. It also
fails if the service did not answer for a package, because pip-audit alone would then report success."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOCKS = Path(__file__).parents[1] / "locks"


def accepted(text: str) -> dict[str, str]:
    """Return reasons by the identifier of a vulnerability. Raises ValueError for a line without a reason."""
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        if len(line) < 2:
            raise ValueError(f"locks/accepted.txt: {line[0]} has no reason")
    return {line[0]: line[1] for line in lines}


def uncompared(report: Mapping[str, Any]) -> list[str]:
    """Return the packages for which the service had no answer."""
    return [str(package["name"]) for package in report["dependencies"] if "skip_reason" in package]


def problems(report: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    """Return what must be changed, given pip-audit's report and the accepted vulnerabilities."""
    found, used = list[str](), set[str]()
    for package in report["dependencies"]:
        for one in package.get("vulns", ()):
            if names := {one["id"], *one.get("aliases", ())} & known.keys():
                used |= names
                continue
            fixed = ", ".join(one.get("fix_versions", ())) or "no version"
            what = f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}"
            found.append(f"{what}; renew it (make constraints), or accept it in locks/accepted.txt")
    gone = [] if uncompared(report) else sorted(known.keys() - used)
    return found + [f"{one}: no package has it; remove it from locks/accepted.txt" for one in gone]


def lock_files() -> list[Path]:
    """Return all lock files: whatever is installed from them is compared."""
    return sorted(file for file in LOCKS.glob("*.txt") if file.name != "accepted.txt")


def audited(file: Path, options: Sequence[str]) -> list[dict[str, Any]]:
    """Return what pip-audit knows about each package of a lock file. Raises ValueError if it has no result."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    command += ["--require-hashes", "--disable-pip", "--requirement", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        found = []
    if not found:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ValueError(f"no result for locks/{file.name}: {last}")
    return found


def main(options: Sequence[str]) -> int:
    """Run pip-audit on all lock files. Return 0 without problems, 1 with some, 2 if it has no result."""
    packages = dict[str, dict[str, Any]]()
    try:
        for file in lock_files():
            packages |= {f"{one['name']} {one.get('version')}": one for one in audited(file, options)}
    except ValueError as error:
        print(f"make audit: {error}\nIt needs pypi.org, whatever index pip uses.")
        return 2
    report = {"dependencies": list(packages.values())}
    found, missing = problems(report, accepted((LOCKS / "accepted.txt").read_text())), uncompared(report)
    for problem in found:
        print(problem)
    if missing:
        names = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        print(
            f"make audit: pypi.org, as this machine reaches it, does not answer for {len(missing)} packages ({names})."
        )
        print("Run it where no mirror without vulnerabilities answers in its place.")
    return 1 if found else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
