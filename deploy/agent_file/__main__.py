"""Run `tailorbird` from one file: unpack the packages for this Python once, then import them from there.

The file is a zip archive. `blobs/` contains each file once, and `python-3.11.json` names those of one Python. Compiled
modules cannot be imported from an archive, so everything is unpacked to a folder of this user, XDG_CACHE_HOME or
~/.cache. Its name contains a digest, and it appears by a rename, so it is complete or absent. This file needs only the
standard library.
"""

import json
import os
import shutil
import sys
import tempfile
import zipfile

FOLDER = "tailorbird"


def main():
    """Unpack if necessary, and run the command line."""
    archive = zipfile.ZipFile(sys.argv[0] if zipfile.is_zipfile(sys.argv[0]) else os.path.dirname(__file__))
    version = "%d.%d" % sys.version_info[:2]
    try:
        listed = json.loads(archive.read("python-%s.json" % version))
    except KeyError:
        found = sorted(name[7:-5] for name in archive.namelist() if name.startswith("python-"))
        sys.exit(
            "tailorbird: this file has no packages for Python %s, but for %s: run it with python%s"
            % (version, ", ".join(found), found[-1])
        )
    packages = unpacked(archive, listed, version)
    sys.path[0] = packages
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    sys.argv[0] = "tailorbird"
    from tailorbird.__main__ import main as run

    run()


def unpacked(archive, listed, version):
    """Return the folder of the packages. Nobody but this user may be able to write to it."""
    base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), FOLDER)
    folder = os.path.join(base, "agent-%s-%s" % (listed["digest"], version))
    os.makedirs(base, mode=0o700, exist_ok=True)
    status = os.stat(base)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        sys.exit(
            "tailorbird: %s belongs to or is writable by another user: set XDG_CACHE_HOME to a private folder" % base
        )
    if os.path.isdir(folder):
        return folder
    work = tempfile.mkdtemp(prefix="agent-", dir=base)
    try:
        for name, digest in listed["files"].items():
            target = os.path.join(work, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open("blobs/" + digest) as source, open(target, "wb") as copy:
                shutil.copyfileobj(source, copy)
        try:
            os.rename(work, folder)
        except OSError:  # another process was faster
            if not os.path.isdir(folder):
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


main()
