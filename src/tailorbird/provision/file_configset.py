"""Gives a Solr core a configuration of its own, as files.

Cores made from one shared configset share its schema file, and the Schema API writes there: the columns of one index
would end in every other. Solr without ZooKeeper takes no configuration over HTTP, so it is laid down where Solr says
that its cores live.
"""

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
    """The configset as the zip file that SolrCloud takes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(_CONFIGSET.iterdir()):
            archive.write(file, file.name)
    return packed.getvalue()


def install_configset(core_root: str, collection: str) -> None:
    """Copy the configset to `<core_root>/<collection>/conf`; UsageError when that folder is not on this machine."""
    target = Path(core_root) / collection / "conf"
    hint = f"run `tailorbird apply` where Solr runs, or share its folder {core_root} with this machine"
    if not os.access(core_root, os.W_OK):
        raise UsageError(f"Solr keeps its cores in {core_root}, which can not be written from here", hint)
    try:
        shutil.copytree(_CONFIGSET, target, dirs_exist_ok=True)
    except OSError as error:
        raise Fatal(f"the configuration of collection {collection} can not be written: {error}", hint) from error
