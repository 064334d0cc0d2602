"""Give each Solr core a configuration of its own, as files.

Cores that share a configset also share its schema. The Schema API changes that schema, so columns of one index would
appear in all others. Solr without ZooKeeper accepts no configuration over HTTP, so the files are copied into the
folder of its cores."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from pathlib import Path

import indexer.solr
from cdc.model.errors import Fatal, UsageError

_CONFIGSET = Path(indexer.solr.__file__).parent / "configset" / "conf"


def packed_configset() -> bytes:
    """Return the configset as a zip file for SolrCloud."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(_CONFIGSET.iterdir()):
            archive.write(file, file.name)
    return packed.getvalue()


def install_configset(core_root: str, collection: str) -> None:
    """Copy the configset to `<core_root>/<collection>/conf`. Raises UsageError if that folder is not on this
    machine."""
    target = Path(core_root) / collection / "conf"
    hint = f"run `tailorbird apply` where Solr runs, or share its folder {core_root} with this machine"
    if not os.access(core_root, os.W_OK):
        raise UsageError(f"Solr keeps its cores in {core_root}, which this machine cannot write to", hint)
    try:
        shutil.copytree(_CONFIGSET, target, dirs_exist_ok=True)
    except OSError as error:
        raise Fatal(f"the configuration of collection {collection} cannot be written: {error}", hint) from error
